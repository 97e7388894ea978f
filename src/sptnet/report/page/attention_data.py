"""Attention of a few images for the page. Each weight is stored as its decile among the patches."""

import base64
import io
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, UInt8
from PIL import Image

from sptnet.inference.attention import AttentionMaps
from sptnet.report.page.thumbnails import as_uri

MOST_BYTES = 4_000_000


def tenths(weights: Float[np.ndarray, "*rows patches"]) -> UInt8[np.ndarray, "*rows patches"]:
    """Return the decile of each weight in its row: 0 for the largest tenth, 9 for the smallest; ties by position.

    The top 10 % are the zeros, and the top 60 % all values below 6, both rounded up to whole patches.
    """
    n = weights.shape[-1]
    order = np.argsort(-weights, axis=-1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(n), order.shape), axis=-1)
    tenth: npt.NDArray[np.uint8] = (10 * ranks // n).astype(np.uint8)
    return tenth


def packed(values: UInt8[np.ndarray, "..."]) -> str:
    """Pack two values per byte, the first in the upper half; compress with zlib and encode as base64."""
    flat = values.reshape(-1)
    even = np.pad(flat, (0, len(flat) % 2))
    return base64.b64encode(zlib.compress((even[0::2] << 4 | even[1::2]).tobytes(), 9)).decode()


def attention_data(
    views: Sequence[tuple[str, Sequence[AttentionMaps]]], images: Sequence[int], most: int = MOST_BYTES
) -> Any:
    """Return one entry per image: its picture and, per view such as "with prompts", the packed deciles of all heads.

    If all entries are too large, there are fewer images; if one is, all images with the class token's rows only.
    """
    entries = [_entry(views, number, image, None) for number, image in enumerate(images)]
    while len(entries) > 1 and _size(entries) > most:
        entries.pop()
    if _size(entries) > most:
        return [_entry(views, number, image, 1) for number, image in enumerate(images)]
    return entries


def _entry(
    views: Sequence[tuple[str, Sequence[AttentionMaps]]], number: int, image: int, rows: int | None
) -> dict[str, Any]:
    first = views[0][1][number]
    return {
        "image": image,
        "picture": as_uri(_webp(first.image)),
        "grid": first.grid,
        "heads": first.heads.shape[0],
        "rows": first.heads.shape[1] if rows is None else rows,
        "views": [{"name": name, "tenths": packed(tenths(maps[number].heads[:, :rows]))} for name, maps in views],
    }


def _size(entries: list[dict[str, Any]]) -> int:
    return sum(len(view["tenths"]) for entry in entries for view in entry["views"])


def _webp(pixels: npt.NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="WEBP", quality=80)
    return stream.getvalue()
