"""The computation of the published code, rewritten for the benchmarks without any optimisation.

Pixels plus prompt, the whole ViT with unfused attention, every token through the last block, both views always made,
gradients for the heads in stage one too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision import transforms

from sptnet.head import PrototypeHead
from sptnet.losses import GcdLoss, gcd_loss

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PlainAttention(nn.Module):
    """Unfused attention: scores, scaling, softmax and product as separate operations."""

    def __init__(self, attention: Any):
        super().__init__()
        self.qkv, self.proj = attention.qkv, attention.proj
        self.num_heads, self.scale = attention.num_heads, attention.scale

    def forward(self, x: Tensor, **_: object) -> Tensor:
        """Attention of all tokens to all tokens."""
        batch, length, dim = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.num_heads, dim // self.num_heads).permute(2, 0, 3, 1, 4)
        scores = (parts[0] @ parts[1].transpose(-2, -1)) * self.scale
        out: Tensor = self.proj((scores.softmax(dim=-1) @ parts[2]).transpose(1, 2).reshape(batch, length, dim))
        return out


class PlainModel(nn.Module):
    """ViT, prompt and head, computed as in the published code."""

    def __init__(self, name: str, prompt: Tensor, n_categories: int, hidden: int, bottleneck: int):
        super().__init__()
        self.vit = timm.create_model(name, pretrained=False, num_classes=0)
        for block in self.vit.blocks:
            block.attn = PlainAttention(block.attn)
        self.vit.requires_grad_(False)
        self.head = PrototypeHead(self.vit.embed_dim, n_categories, hidden, bottleneck)
        self.prompt = nn.Parameter(prompt.clone())

    def features(self, images: Tensor) -> Tensor:
        """Class tokens after the final norm."""
        tokens: Tensor = self.vit.forward_features(images)
        return tokens[:, 0]

    def last_block_and_head(self) -> list[nn.Parameter]:
        """Parameters that stage two trains."""
        return [*self.vit.blocks[-1].parameters(), *(p for p in self.head.parameters() if p.requires_grad)]

    def stage_one(self, one: Tensor, two: Tensor, labels: Tensor) -> GcdLoss:
        """Prompt both views and train the prompts; the gradients of the head are computed and discarded."""
        self.vit.blocks[-1].requires_grad_(False)
        self.prompt.requires_grad_(True)
        return self._loss(torch.cat([one + self.prompt, two + self.prompt]), labels)

    def stage_two(self, one: Tensor, labels: Tensor) -> GcdLoss:
        """Train last block and head on view one, raw and prompted."""
        self.vit.blocks[-1].requires_grad_(True)
        self.prompt.requires_grad_(False)
        return self._loss(torch.cat([one, one + self.prompt]), labels)

    def simgcd(self, one: Tensor, two: Tensor, labels: Tensor) -> GcdLoss:
        """Train last block and head on two raw views."""
        self.vit.blocks[-1].requires_grad_(True)
        return self._loss(torch.cat([one, two]), labels)

    def _loss(self, images: Tensor, labels: Tensor) -> GcdLoss:
        projections, logits = self.head(self.features(images))
        return gcd_loss(projections, logits, labels, labels >= 0, 0.07)


def plain_views(files: Sequence[Path], size: int) -> tuple[Tensor, Tensor]:
    """Make two views per image, each resized, cropped, flipped and normalised separately."""
    transform = transforms.Compose(
        [
            transforms.Resize(int(size / 0.875), transforms.InterpolationMode.BICUBIC),
            transforms.RandomCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    views: tuple[list[Tensor], list[Tensor]] = ([], [])
    for file in files:
        image = Image.open(file).convert("RGB")
        for view in views:
            view.append(transform(image))
    return torch.stack(views[0]), torch.stack(views[1])
