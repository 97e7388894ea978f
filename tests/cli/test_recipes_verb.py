"""`sptnet recipes`: list, show and copy."""

import json
import re
from pathlib import Path

import pytest

from conftest import Call
from sptnet.config.recipes import load_recipe, recipe_names, recipe_text


def test_the_list_has_a_line_for_every_recipe(call: Call) -> None:
    code, out, err = call("recipes", "list")
    head, *lines = out.splitlines()
    assert (code, err, head.split()) == (
        0, "", ["name", "data", "set", "method", "All", "Old", "New", "what", "it", "does"],
    )  # fmt: skip
    assert [line.split()[0] for line in lines] == recipe_names()
    by_name = {line.split()[0]: re.split(r" {2,}", line) for line in lines}
    sentence = "SPTNet on CUB-200-2011 (Semantic Shift Benchmark)."
    assert by_name["cub/sptnet"] == ["cub/sptnet", "cub", "sptnet", "65.8", "68.8", "65.1", sentence]
    assert by_name["pacs/simgcd"][1:6] == ["pacs", "simgcd", "-", "-", "-"]
    assert by_name["sptnet-p"][1:3] == ["folder", "sptnet-p"]
    assert by_name["ablation/prompt-shared"][2] == "sptnet-s"
    assert by_name["ablation/prompt-only-spatial"][2] == "sptnet"
    assert by_name["ablation/prompt-shared"][-1].endswith(" (published: SSB average)")


@pytest.mark.parametrize("folder", ["cub", "cub/"])
def test_the_list_of_a_folder_also_as_json(folder: str, call: Call) -> None:
    names = [name for name in recipe_names() if name.startswith("cub/")]
    assert [line.split()[0] for line in call("recipes", "list", folder)[1].splitlines()[1:]] == names
    code, out, _ = call("recipes", "list", folder, "--json")
    entries = json.loads(out)["recipes"]
    assert (code, [entry["name"] for entry in entries]) == (0, names)
    assert entries[names.index("cub/sptnet")] == {
        "name": "cub/sptnet",
        "data": "cub",
        "method": "sptnet",
        "published": {"all": 65.8, "old": 68.8, "new": 65.1, "of": None},
        "summary": "SPTNet on CUB-200-2011 (Semantic Shift Benchmark).",
    }


def test_the_list_of_a_method_in_all_folders_or_in_one(call: Call) -> None:
    names = [line.split()[0] for line in call("recipes", "list", "--method", "cipr")[1].splitlines()[1:]]
    assert names == [name for name in recipe_names() if load_recipe(name).method == "cipr"]
    assert {"cipr", "cub/cipr", "aircraft/cipr"} < set(names)
    assert [line.split()[0] for line in call("recipes", "list", "cub", "--method", "sptnet-s")[1].splitlines()[1:]] == [
        "cub/sptnet-s", "cub/sptnet-s-dinov2",
    ]  # fmt: skip


@pytest.mark.parametrize(("where", "said"), [((), ""), (("pacs",), " in 'pacs'")])
def test_a_method_without_recipes_is_refused(where: tuple[str, ...], said: str, call: Call) -> None:
    code, out, err = call("recipes", "list", *where, "--method", "orka")
    assert (code, out) == (2, "")
    assert f"there is no recipe of the method 'orka'{said}. Choose from: " in err
    assert "simgcd, sptnet" in err


def test_a_folder_that_is_none_is_refused(call: Call) -> None:
    code, out, err = call("recipes", "list", "cup")
    assert (code, out) == (2, "")
    assert "no folder of recipes 'cup'. Choose from: ablation, aircraft, cars," in err


def test_a_recipe_of_a_folder_is_shown_and_copied(tmp_path: Path, call: Call) -> None:
    assert call("recipes", "show", "cub/sptnet")[1] == recipe_text("cub/sptnet")
    mine = tmp_path / "mine.toml"
    assert call("recipes", "copy", "cub/sptnet", mine)[0] == 0
    assert mine.read_text(encoding="utf-8") == recipe_text("cub/sptnet")
    assert load_recipe(str(mine)) == load_recipe("cub/sptnet")
