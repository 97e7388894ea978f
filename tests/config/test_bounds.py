"""Every number of the settings has bounds, and a message names the one that is crossed."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from conftest import Call
from sptnet.config import Config
from sptnet.config.recipes import load_recipe, make_config, parse_settings, parse_toml, parse_value, with_settings
from sptnet.discovery.estimator import CategoryDiscoverer
from sptnet.errors import Misuse
from sptnet.methods.mugcd import teacher_decay

FREE = {"data.known_classes"}
"""Numbers that are compared with the images, which are fewer than any bound."""


def numbers(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield every key whose value may be a number, with the JSON schemas of its numbers."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from numbers(kind, f"{prefix}{name}.")
            continue
        schema = model.model_json_schema()["properties"][name]
        found = [part for part in schema.get("anyOf", [schema]) if part.get("type") in ("integer", "number")]
        if found:
            yield prefix + name, found


NUMBERS = dict(numbers(Config))


def test_the_numbers_are_found() -> None:
    assert len(NUMBERS) > 150
    assert {"seed", "views.workers", "gcd.output", "simgcd.minutes", "cipr.level"} <= NUMBERS.keys()


@pytest.mark.parametrize("key", sorted(NUMBERS.keys() - FREE))
def test_every_number_has_an_upper_and_a_lower_bound(key: str) -> None:
    for schema in NUMBERS[key]:
        assert {"maximum", "exclusiveMaximum"} & schema.keys(), key
        assert {"minimum", "exclusiveMinimum"} & schema.keys(), key


@pytest.mark.parametrize("key", sorted(NUMBERS.keys() - FREE))
def test_one_more_than_the_bound_is_refused_and_the_bound_is_named(key: str) -> None:
    schema = NUMBERS[key][0]
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    beyond = most * 10 if schema["type"] == "number" else most + 1
    with pytest.raises(Misuse) as error:
        make_config(with_settings({}, {key: beyond}), "test")
    bound = "1e38" if most == 1e38 else f"{most:.20g}"
    assert re.search(rf"\b{key}: input should be less than (or equal to )?{bound}( or .*)?\. Got ", str(error.value))


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "+inf"])
@pytest.mark.parametrize("key", sorted(key for key, schemas in NUMBERS.items() if schemas[0]["type"] == "number"))
def test_settings_are_finite(key: str, value: str) -> None:
    for settings in (parse_settings([f"{key}={value}"]), {key: float(value)}):
        with pytest.raises(Misuse, match=f"{key}: "):
            make_config(with_settings({}, settings), "test")
    section, _, name = key.rpartition(".")
    text = f"[{section}]\n{name} = {value}" if section else f"{name} = {value}"
    with pytest.raises(Misuse, match=f"{key}: "):
        make_config(parse_toml(text, "file"), "file")


@pytest.mark.parametrize(
    "value", ["9" * 5000, "0x" + "f" * 5000, "[" * 5000, "1e5000", "{a = " * 3000, ".".join("a" * 5000), "1\0"]
)
@pytest.mark.parametrize("key", ["seed", "views.workers", "n_categories", "simgcd.learning_rate", "prompt"])
def test_no_value_is_too_odd_for_one_message(key: str, value: str) -> None:
    with pytest.raises(Misuse) as error:
        load_recipe("digits", [f"{key}={value}"])
    assert f"{key}: " in str(error.value)
    assert len(str(error.value)) < 600


def test_numbers_of_python_without_a_text_are_refused_too() -> None:
    with pytest.raises(Misuse, match=r"seed: .*less than.*\. Got a int that is too long to show\."):
        load_recipe("digits", {"seed": 10**5000})


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "a\nb"])
def test_a_recipe_of_an_impossible_name_is_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="there is no recipe"):
        load_recipe(name)
    (tmp_path / "own.toml").write_text(f"base = {json.dumps(name)}")
    with pytest.raises(Misuse, match="says base = "):
        load_recipe(str(tmp_path / "own.toml"))


def test_endless_values_stay_text() -> None:
    assert parse_value("9" * 5000) == "9" * 5000
    assert parse_value("[" * 5000) == "[" * 5000


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        (
            {"method": "gcd", "gcd.output": 2**18, "head.bottleneck": 4096},
            "bottleneck and gcd.output make a head of",
        ),
        (
            {"method": "mugcd", "gcd.output": 2**18, "head.bottleneck": 4096},
            "bottleneck and gcd.output make a head of",
        ),
        (
            {"method": "simgcd", "head.hidden": 16384, "head.bottleneck": 16384},
            "head.bottleneck make a head of",
        ),
    ],
)
def test_a_head_that_fits_no_memory_is_refused(sizes: dict[str, Any], says: str) -> None:
    with pytest.raises(Misuse, match=rf"{says} [\d,]+ weights; give at most 500,000,000"):
        make_config(with_settings({}, sizes), "test")


def test_the_widest_published_head_is_allowed() -> None:
    config = make_config(with_settings({}, {"method": "gcd", "head.hidden": 4096, "gcd.output": 2**18}), "test")
    assert config.gcd.output == 2**18


def test_many_unknown_keys_are_explained_in_part() -> None:
    with pytest.raises(Misuse) as error:
        make_config({f"key{i}": i for i in range(10_000)}, "test")
    assert str(error.value).count("unknown key") == 20


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"minutes": math.inf}, "minutes is inf. Give at most 1000000."),
        ({"epochs": 10**9}, "epochs: input should be less than or equal to 1000000. Got 1000000000."),
        ({"n_categories": 10**9}, "n_categories: input should be less than or equal to 1000000"),
        ({"settings": {"simgcd.learning_rate": math.nan}}, "simgcd.learning_rate: input should be a finite number"),
        (
            {"n_categories": 1000},
            "`n_categories` is 1000, but there are only 20 training images. Give at most that many.",
        ),
    ],
)
def test_the_estimator_has_the_same_bounds(changes: dict[str, Any], says: str, digit_folder: Any) -> None:
    images = sorted(digit_folder.rglob("*.png"))[:20]
    labels = [path.parent.name if i % 2 else -1 for i, path in enumerate(images)]
    estimator = CategoryDiscoverer("sskmeans", **({"n_categories": 5, "backbone": "sptnet_digits_vit"} | changes))
    with pytest.raises(Misuse) as error:
        estimator.fit(images, labels)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("views.workers=99999999999", "views.workers: input should be less than or equal to 1024"),
        ("head.hidden=99999999999", "head.hidden: input should be less than or equal to 16384"),
        ("n_categories=1000000", "`n_categories` is 1000000, but there are only 60 training images."),
        ("category_factor=1e30", "category_factor 1e+30 times 10 is 1e+31, but there are only 60 training images."),
        ("sskmeans.n_init=99999999999", "sskmeans.n_init: input should be less than or equal to 10000"),
        ("gcd.output=99999999999", "gcd.output: input should be less than or equal to 262144"),
        ("backbone.image_size=100000", "backbone.image_size: input should be less than or equal to 4096"),
        ("simgcd.learning_rate=inf", "simgcd.learning_rate: input should be a finite number. Got inf."),
        ("simgcd.temperature.x.y=1", "unknown key simgcd.temperature"),
    ],
)
def test_the_command_line_names_the_bound(
    setting: str, says: str, train_words: list[str], tmp_path: Any, call: Call
) -> None:
    answer = call(*train_words, "--out", tmp_path / "run", "--set", setting)
    assert answer.code == 2
    assert says in answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("share", ["nan", "inf"])
def test_a_share_on_the_command_line_is_a_number(share: str, tmp_path: Any, call: Call) -> None:
    for words in (["predict", tmp_path, tmp_path], ["evaluate", tmp_path, "--data", tmp_path]):
        answer = call(*words, "--max-unreadable", share)
        assert answer.code == 2
        assert "max-unreadable" in answer.err


def test_a_teacher_of_mugcd_does_not_begin_with_a_negative_decay() -> None:
    with pytest.raises(Misuse, match="base_decay and final_decay begin with a negative decay; let them add up to 1"):
        make_config(with_settings({}, {"mugcd.base_decay": 0.3, "mugcd.final_decay": 0.6}), "test")
    settings = make_config(with_settings({}, {"mugcd.base_decay": 0.5, "mugcd.final_decay": 0.5}), "test").mugcd
    assert teacher_decay(0, 100, settings.base_decay, settings.final_decay) == 0
