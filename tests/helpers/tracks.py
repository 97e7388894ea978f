"""Read tracks back: event files of TensorBoard, and files of Weights & Biases that were written offline."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, 7
"""Sizes in a file of Weights & Biases: blocks of records, and the header of the file and of every record."""


@dataclass
class ReadTrack:
    """Contents of a track."""

    scalars: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Steps and values by name."""
    pictures: dict[str, list[int]] = field(default_factory=dict)
    """Steps by title."""
    scores: dict[str, float] = field(default_factory=dict)
    """Final scores by name."""
    reports: list[Any] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)


def read_tensorboard(run: Path) -> ReadTrack:
    """Read the track of a run from its event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "track" / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    tags = events.Tags()
    scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags["scalars"]}
    return ReadTrack(
        {tag: values for tag, values in scalars.items() if not tag.startswith("final/")},
        {tag: [event.step for event in events.Images(tag)] for tag in tags["images"]},
        {tag: values[0][1] for tag, values in scalars.items() if tag.startswith("final/") and len(values) == 1},
        [e for tag in tags["tensors"] if tag.startswith("report") for e in events.Tensors(tag)],
    )


def read_wandb(run: Path) -> ReadTrack:
    """Read the track of a run from all its offline parts, in the order in which they were written."""
    import wandb

    wandb.teardown()  # waits until its process has written everything
    track = ReadTrack()
    for file in sorted((run / "track" / "wandb").glob("offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime):
        for record in _records(file.read_bytes()):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                track.ids.add(record.run.run_id)
            elif kind == "artifact":
                track.reports.append(record.artifact)
            elif kind == "summary":
                values = {item.key: item.value_json for item in record.summary.update}
                track.scores |= {key: json.loads(v) for key, v in values.items() if key.startswith("final/")}
            elif kind == "history":
                _add_history(track, record.history)
    return track


def _add_history(track: ReadTrack, history: Any) -> None:
    for item in history.item:
        value, keys = json.loads(item.value_json), list(item.nested_key)
        if keys[-1:] == ["_type"]:
            assert value == "image-file"
            track.pictures.setdefault(keys[0], []).append(history.step.num)
        elif len(keys) == 1 and not keys[0].startswith("_"):
            track.scalars.setdefault(keys[0], []).append((history.step.num, value))


def _records(data: bytes) -> Iterator[Any]:
    """Yield the records of a log in LevelDB's format: a record is whole (1), or has a first to last part (2, 3, 4)."""
    from wandb.proto import wandb_internal_pb2

    at, whole = HEADER, b""
    while at + HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        _, length, part = struct.unpack_from("<IHB", data, at)
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if part in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""
