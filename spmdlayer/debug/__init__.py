"""Looking at what a program does."""
