"""The compatibility table names tests that exist and tells their outcome."""

from compatibility_table import ROOT, TABLE, TOOLS, cell, page, wanted


def test_every_test_that_the_table_names_exists():
    for test in wanted():
        file, _, name = test.partition("::")
        source = (ROOT / file).read_text()
        assert not name or f"def {name.split('[')[0]}(" in source, test


def test_every_row_has_a_cell_for_each_tool():
    assert {len(row) for row in TABLE.values()} == {len(TOOLS)}


def test_a_cell_is_the_outcome_of_all_its_tests():
    found = {"a.py::test_x[1]": "passed", "a.py::test_x[2]": "failed", "a.py::test_y": "skipped"}
    assert cell("a.py::test_x[1", found) == "yes"
    assert cell(("a.py::test_x[1", "no"), found) == "no"
    assert cell(("a.py::test_x", "no"), found) == "**fails**"
    assert cell("a.py::test_y", found) == cell("a.py::test_z", found) == "not run"
    assert cell(None, found) == "not tested"


def test_the_page_counts_what_failed():
    assert "0 tests passed, 1 failed, 0 skipped" in page({"tests/test_errors.py::x": "failed"})
