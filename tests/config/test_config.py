"""Settings: frozen, validated as a whole, and equal after writing and reading."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sptnet.config import Config
from sptnet.config.recipes import (
    all_keys,
    load_recipe,
    make_config,
    parse_settings,
    parse_toml,
    parse_value,
    read_config,
    recipe_names,
    recipe_text,
    to_toml,
    with_settings,
)
from sptnet.errors import Failure, Misuse
from sptnet.methods import stages_of

AWKWARD = ["", " ", "a b", 'say "x"', "it's", "C:\\new\\table", "two\nlines", "\r\n", "\t", "#", "[x]", "ü/日本/🐦",
           "\x00", "\x7f", "\u2028", "\\U0000", "'''", '"""', "none", "5", "true"]  # fmt: skip
TEXT = st.text(max_size=30) | st.sampled_from(AWKWARD)


def recipe(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "config.toml"


def test_settings_are_frozen_at_every_level() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3
    with pytest.raises(ValidationError, match="frozen"):
        config.training.batch_size = 3
    assert (config.seed, config.training.batch_size) == (0, 128)


def test_unknown_keys_are_refused_at_every_level() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Config(sede=1)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Config(training={"batchsize": 1})  # type: ignore[arg-type]


def test_changed_gives_a_checked_copy() -> None:
    config = Config()
    changed = config.changed(prompt={"kind": "shared"}, training={"batch_size": 4})
    assert (changed.prompt.kind, changed.training.batch_size) == ("shared", 4)
    assert config == Config()
    with pytest.raises(ValidationError, match="batch_size"):
        config.changed(training={"batch_size": 1})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "labelled_share", 1.5),
        ("data", "max_unreadable", -0.1),
        ("backbone", "trainable_blocks", 0),
        ("backbone", "image_size", 0),
        ("head", "hidden", 0),
        ("views", "crop_ratio", 0),
        ("views", "workers", -1),
        ("prompt", "kind", "frame"),
        ("prompt", "width", 0),
        ("simgcd", "epochs", 0),
        ("simgcd", "teacher_end", 0),
        ("sptnet", "k", 0),
        ("sptnet", "strategy", "both"),
        ("training", "batch_size", 1),
        ("training", "select", "best-test"),
    ],
)
def test_limits_are_checked(section: str, key: str, value: Any) -> None:
    with pytest.raises(Misuse, match=rf"{section}\.{key}"):
        make_config({section: {key: value}}, "mine")


def test_the_package_has_these_recipes() -> None:
    assert {"digits", "simgcd", "sptnet", "sptnet-p", "sptnet-s", "sptnet-dinov2"} <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_of_the_package_loads_and_comes_back_from_its_file(name: str, config_file: Path) -> None:
    assert recipe_text(name).startswith("# ")  # the first line says what it does
    config = load_recipe(name)
    assert bool(stages_of(config)) == (config.method != "kmeans")
    config_file.write_text(to_toml(config), encoding="utf-8")
    assert read_config(config_file) == config


@given(folder=TEXT, weights=st.none() | TEXT, names=st.lists(TEXT, max_size=4), seed=st.integers(0, 2**31))
@settings(max_examples=80, deadline=None)
def test_any_text_comes_back_from_the_file(
    config_file: Path, folder: str, weights: str | None, names: list[str], seed: int
) -> None:
    data = {"folder": folder, "labels": weights, "known_classes": names}
    config = Config(seed=seed, device=folder, data=data, backbone={"weights": weights})  # type: ignore[arg-type]
    config_file.write_text(to_toml(config), encoding="utf-8")
    assert read_config(config_file) == config


@given(
    rate=st.floats(0, 1e9),
    decay=st.floats(0, 1, allow_subnormal=True),
    known=st.none() | st.integers(-(2**40), 2**40),
)
@settings(max_examples=60, deadline=None)
def test_any_number_comes_back_from_the_text(rate: float, decay: float, known: int | None) -> None:
    config = Config().changed(sptnet={"learning_rate": rate, "weight_decay": decay}, data={"known_classes": known})
    assert make_config(parse_toml(to_toml(config), "text"), "text") == config


def test_a_config_file_that_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"nothing\.toml cannot be read"):
        read_config(tmp_path / "nothing.toml")
    (tmp_path / "broken.toml").write_text("seed = [1", encoding="utf-8")
    with pytest.raises(Failure, match=r"broken\.toml is damaged \(Unclosed array .*\)\. Restore it, or train into"):
        read_config(tmp_path / "broken.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("3", 3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('["a", "b"]', ["a", "b"]),
        ('"3"', "3"),
        ("shared+global", "shared+global"),
        ("C:\\data", "C:\\data"),
        ("none", None),
        ('"none"', "none"),
        ("", ""),
    ],
)
def test_a_setting_is_a_toml_value_or_bare_text(text: str, value: Any) -> None:
    assert parse_value(text) == value


def test_settings_overrule_the_recipe_and_the_last_one_wins() -> None:
    config = load_recipe("digits", ["training.batch_size=8", "training.batch_size = 16", "data.known_classes=none"])
    assert (config.training.batch_size, config.data.known_classes) == (16, None)
    assert config.simgcd == load_recipe("digits").simgcd != Config().simgcd  # what the recipe says stays


def test_the_kind_none_is_a_kind() -> None:
    assert load_recipe("sptnet", ["prompt.kind=none"]).prompt.kind == "none"
    assert load_recipe("sptnet", ["training.track=none"]).training.track == "none"


@pytest.mark.parametrize("setting", ["training.batch_size", "=3", " =3", "", "training"])
def test_a_setting_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(Misuse, match=r"not of the form a\.b=c"):
        parse_settings([setting])


def test_a_setting_below_a_value_is_refused() -> None:
    with pytest.raises(Misuse, match="seed is a value, not a section"):
        with_settings({"seed": 1}, {"seed.x": 3})


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = "metod = 'x'\nseed = -1\n[training]\nbatchsize = 3\nmomentum = 'a'\n"
    with pytest.raises(Misuse) as error:
        load_recipe(recipe(tmp_path, text), ["head.hidden=0"])
    message = str(error.value)
    for phrase in ("mine.toml", "metod", "Did you mean method?", "seed", "Got -1", "Did you mean training.batch_size?",
                   "training.momentum", "Got 'a'", "head.hidden"):  # fmt: skip
        assert phrase in message
    assert message.count("\n  - ") == 5


def test_an_unknown_key_far_from_all_others_lists_the_keys() -> None:
    with pytest.raises(Misuse, match=r"unknown key quux.*lists all keys"):
        load_recipe("sptnet", ["quux=1"])


@pytest.mark.parametrize("section", ["prompt", "training", "data"])
def test_a_value_where_a_section_belongs_is_reported(section: str, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=section):
        load_recipe(recipe(tmp_path, f"{section} = 5\n"))


def test_a_recipe_that_is_no_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfemethod")
    with pytest.raises(Misuse, match=r"mine\.toml"):
        load_recipe(str(path))


def test_keys_are_listed_by_section() -> None:
    keys = all_keys()
    assert len(keys) == len(set(keys))
    assert {"method", "seed", "data.folder", "prompt.width", "sptnet.k", "training.batch_size"} <= set(keys)
    assert "data" not in keys


def test_benchmarks_are_read_exactly_and_own_images_quickly() -> None:
    assert load_recipe("digits").reading == "exact"
    assert load_recipe("digits", ["data.source=cub"]).reading == "exact"
    for own in ("folder", "domains"):
        assert load_recipe("digits", [f"data.source={own}"]).reading == "quick"
    assert load_recipe("digits", ["views.reading=quick"]).reading == "quick"
    assert load_recipe("digits", ["data.source=folder", "views.reading=exact"]).reading == "exact"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("gcd.start_from", "mugcd.start_from"),  # the last word is right, the section is not
        ("uno.entropy_weight", "mugcd.entropy_weight"),
        ("views.batch_size", "training.batch_size"),
        ("bse", "base"),
    ],
)
def test_an_unknown_key_finds_its_section_by_its_last_word(key: str, meant: str, tmp_path: Path) -> None:
    text = f"{key} = 'x'\n" if "." not in key else "[{}]\n{} = 1\n".format(*key.split("."))
    with pytest.raises(Misuse, match=rf"unknown key {key}\. Did you mean {meant}\?"):
        load_recipe(recipe(tmp_path, text))
