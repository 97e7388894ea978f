"""Recipes that name another as their base and hold only what differs."""

import tomllib
from pathlib import Path

import pytest

from sptnet.config import Config
from sptnet.config.recipes import (
    load_recipe,
    merged,
    parse_toml,
    read_config,
    recipe_names,
    recipe_text,
    recipe_values,
    to_toml,
)
from sptnet.errors import Misuse


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_values_are_merged_key_by_key_within_a_section() -> None:
    below = {"seed": 1, "method": "simgcd", "simgcd": {"epochs": 5, "learning_rate": 0.2}, "data": {"source": "cub"}}
    above = {"method": "orca", "simgcd": {"epochs": 7}, "orca": {"scale": 5.0}}
    assert merged(below, above) == {
        "seed": 1,
        "method": "orca",
        "simgcd": {"epochs": 7, "learning_rate": 0.2},
        "data": {"source": "cub"},
        "orca": {"scale": 5.0},
    }
    assert below["simgcd"] == {"epochs": 5, "learning_rate": 0.2}  # the arguments stay as they are
    assert above == {"method": "orca", "simgcd": {"epochs": 7}, "orca": {"scale": 5.0}}


def test_lists_are_replaced_as_a_whole() -> None:
    below = {"data": {"unlabelled_domains": ["a", "b"], "known_classes": 3}}
    assert merged(below, {"data": {"unlabelled_domains": ["c"]}}) == {
        "data": {"unlabelled_domains": ["c"], "known_classes": 3}
    }


def test_a_value_where_the_base_has_a_section_is_reported(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", 'base = "cub/simgcd"\nsimgcd = 5\n')
    with pytest.raises(Misuse, match="simgcd: this is a section with keys of its own"):
        load_recipe(mine)


def test_a_recipe_of_the_package_is_the_base_of_a_file(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", 'base = "cub/simgcd"\n[simgcd]\nepochs = 3\n')
    assert load_recipe(mine) == load_recipe("cub/simgcd").changed(simgcd={"epochs": 3})
    assert load_recipe(mine).simgcd.entropy_weight == 2  # of the base, in the same section


def test_a_file_beside_does_not_hide_a_recipe_of_the_package(tmp_path: Path) -> None:
    write(tmp_path / "digits", "seed = 9\n")
    mine = write(tmp_path / "mine.toml", 'base = "digits"\n')
    assert load_recipe(mine) == load_recipe("digits")


def test_a_base_has_a_base(tmp_path: Path) -> None:
    write(tmp_path / "low.toml", 'base = "cub/simgcd"\nseed = 1\n[simgcd]\nepochs = 3\nlearning_rate = 0.2\n')
    write(tmp_path / "middle.toml", 'base = "low.toml"\nseed = 2\n[simgcd]\nepochs = 4\n')
    high = write(tmp_path / "high.toml", 'base = "middle.toml"\nmethod = "sptnet"\n')
    config = load_recipe(high)
    assert (config.method, config.seed, config.data.source) == ("sptnet", 2, "cub")
    assert config.simgcd.model_dump(include={"epochs", "learning_rate", "entropy_weight"}) == {
        "epochs": 4, "learning_rate": 0.2, "entropy_weight": 2,
    }  # fmt: skip


def test_the_path_of_a_base_is_relative_to_its_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "shared/all.toml", 'base = "more/lowest.toml"\nseed = 3\n')
    write(tmp_path / "shared/more/lowest.toml", 'method = "gcd"\n')
    mine = write(tmp_path / "mine/one.toml", 'base = "../shared/all.toml"\n')
    for folder in (tmp_path, tmp_path / "shared"):
        monkeypatch.chdir(folder)
        assert load_recipe(mine) == Config(seed=3, method="gcd")
    monkeypatch.chdir(tmp_path)
    assert load_recipe("mine/one.toml") == Config(seed=3, method="gcd")


def test_an_absolute_path_is_a_base(tmp_path: Path) -> None:
    base = write(tmp_path / "one/base.toml", "seed = 4\n")
    mine = write(tmp_path / "two/mine.toml", f"base = {base!r}\n")
    assert load_recipe(mine) == Config(seed=4)


def test_settings_overrule_both(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", 'base = "cub/simgcd"\n[simgcd]\nepochs = 3\n')
    config = load_recipe(mine, ["simgcd.epochs=1", "simgcd.entropy_weight=0.5"])
    assert (config.simgcd.epochs, config.simgcd.entropy_weight) == (1, 0.5)


def test_a_circle_of_bases_is_refused_with_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.toml", 'base = "b.toml"\n')
    write(tmp_path / "b.toml", 'base = "c.toml"\n')
    write(tmp_path / "c.toml", 'base = "a.toml"\n')
    with pytest.raises(Misuse, match=r"c\.toml has itself as its base: a\.toml -> b\.toml -> c\.toml -> a\.toml\. "):
        load_recipe("a.toml")
    with pytest.raises(Misuse, match=r"b\.toml has itself as its base: c\.toml -> a\.toml -> b\.toml -> c\.toml\. "):
        load_recipe("c.toml")


@pytest.mark.parametrize("base", ["mine.toml", "./mine.toml", "../x/mine.toml", "../x/../x/mine.toml"])
def test_a_recipe_is_not_its_own_base_however_its_path_is_written(base: str, tmp_path: Path) -> None:
    mine = write(tmp_path / "x/mine.toml", f'base = "{base}"\n')
    with pytest.raises(Misuse, match="has itself as its base"):
        load_recipe(mine)


def test_a_base_that_does_not_exist_is_named_with_its_recipe(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", 'base = "cub/simgdc"\n')
    expected = r"mine\.toml says base = 'cub/simgdc'\. There is no such recipe.* Did you mean cub/simgcd\?"
    with pytest.raises(Misuse, match=expected):
        load_recipe(mine)
    write(tmp_path / "mine.toml", 'base = "cub"\n')
    with pytest.raises(Misuse, match=r"says base = 'cub'.*It is a folder of recipes"):
        load_recipe(mine)
    write(tmp_path / "mine.toml", 'base = "low.toml"\n')
    write(tmp_path / "low.toml", 'base = "missing.toml"\n')
    with pytest.raises(Misuse, match=r"low\.toml says base = 'missing\.toml'"):  # the one that names it
        load_recipe(mine)


@pytest.mark.parametrize("base", ["3", "true", '["cub/simgcd"]', "{ name = 1 }"])
def test_a_base_that_is_no_text_is_refused(base: str, tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", f"base = {base}\n")
    with pytest.raises(Misuse, match=r'mine\.toml says base = .*\. Give the name of a recipe.*base = "cub/simgcd"'):
        load_recipe(mine)


def test_an_empty_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"says base = ''\. There is no such recipe"):
        load_recipe(write(tmp_path / "mine.toml", 'base = ""\n'))


def test_a_mistake_in_a_base_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "low.toml", "seed = [1\n")
    with pytest.raises(Misuse, match=r"low\.toml is not valid TOML"):
        load_recipe(write(tmp_path / "mine.toml", 'base = "low.toml"\n'))


def test_the_config_of_a_run_has_no_base(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", 'base = "cub/simgcd"\n[simgcd]\nepochs = 3\n')
    assert "base" not in recipe_values(mine)
    config = load_recipe(mine)
    text = to_toml(config)
    assert "base" not in tomllib.loads(text)
    written = tmp_path / "config.toml"
    write(written, text)
    assert read_config(written) == load_recipe(str(written)) == config


def test_a_base_is_no_setting() -> None:
    with pytest.raises(Misuse, match="unknown key base"):
        load_recipe("cub/simgcd", ["base=cub/gcd"])


def test_a_recipe_of_the_package_has_a_recipe_of_the_package_as_its_base() -> None:
    bases = {name: parse_toml(recipe_text(name), name).get("base") for name in recipe_names()}
    assert {name: base for name, base in bases.items() if base not in (None, *recipe_names())} == {}
