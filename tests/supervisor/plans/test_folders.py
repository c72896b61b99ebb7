"""Plan folders, read anew when they change."""

import os
from pathlib import Path

from kasmon.supervisor.plans.folders import PlanFolders

PLAN = "## Wave 1\n### Task 1: a\n"


def names(folders: PlanFolders) -> list[str]:
    return [Path(found.file).name for found in folders.read()]


def test_only_the_plans_of_a_folder_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(PLAN)
    (tmp_path / "b.toml").write_text('[[task]]\nrun = "x"\n')
    (tmp_path / "README.md").write_text("# Words\n")
    (tmp_path / "c.txt").write_text(PLAN)
    (tmp_path / "d.md").mkdir()
    (tmp_path / "gone.md").symlink_to("nowhere")

    assert ["a.md", "b.toml"] == names(PlanFolders([str(tmp_path)]))


def test_a_link_that_leads_to_itself_hides_no_other_plan(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(PLAN)
    (tmp_path / "loop.md").symlink_to("loop.md")

    assert ["a.md"] == names(PlanFolders([str(tmp_path)]))


def test_edited_added_and_removed_plans_are_detected_at_the_next_read(tmp_path: Path) -> None:
    folders = PlanFolders([str(tmp_path)])
    assert () == folders.read()
    (tmp_path / "a.md").write_text(PLAN)
    [first] = folders.read()
    assert [first] == list(folders.read())
    (tmp_path / "a.md").write_text(PLAN + "### Task 2: b\n")
    assert 2 == len(folders.read()[0].plan.tasks)
    (tmp_path / "a.md").unlink()
    assert () == folders.read()


def test_a_faulty_plan_names_its_fault(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("## Wave 2\n### Task 1: a\n")
    (tmp_path / "b.md").write_bytes(b"\xff\xfe")

    faulty, broken = PlanFolders([str(tmp_path)]).read()

    assert ["found wave 2 where wave 1 was expected"] == [fault.why for fault in faulty.faults]
    assert "is not UTF-8" in broken.faults[0].why


def test_a_missing_folder_or_a_pipe_delays_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")

    assert [] == names(PlanFolders([str(tmp_path), str(tmp_path / "none"), str(tmp_path / "a.md")]))
