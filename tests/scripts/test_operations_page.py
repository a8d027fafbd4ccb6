"""docs/operations.md is what the registry says."""

import importlib
from pathlib import Path

import pytest

from spmdlayer.ops.registry import REGISTRY
from spmdlayer.ops.rules import statement

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def operations(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("operations")


def test_every_rule_states_itself(operations):
    operations.import_all()
    silent = [op.name for op in REGISTRY.values() if op.rule is not None and not hasattr(op.rule, "words")]
    assert silent == [], "decorate the rules of these operations with `stated`"
    assert all(all(statement(op)) for op in REGISTRY.values())


def test_the_page_is_up_to_date(operations):
    assert operations.PAGE.read_text() == operations.page(), "run `make docs`"
