"""The whole model: prompts, backbone, head."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from sptnet.config import PromptSettings
from sptnet.head import Head, TwinHead
from sptnet.model.backbone import Backbone
from sptnet.prompts import DeepTokens, SummedPrompt, build_prompt

Group = Literal["prompt", "model"]


class GcdModel(nn.Module):
    """Model that maps images to projections and logits; `prompted=False` leaves the prompts out."""

    def __init__(self, backbone: Backbone, head: Head, trainable_blocks: int = 1):
        super().__init__()
        self.backbone = backbone
        self.head: Head = head
        self.prompt: SummedPrompt = build_prompt("none", backbone.pixels.image_size, backbone.patch_size)
        self.tokens: DeepTokens | None = None
        self.prompt_settings = PromptSettings(kind="none")
        self.trainable_blocks = trainable_blocks
        self.n_token_outputs = 0
        """Number of prompt tokens whose mean output the head projects too (PromptCAL)."""

    def attach_prompt(self, settings: PromptSettings, generator: Generator | None = None) -> None:
        """Replace the prompts by newly initialised ones."""
        backbone, self.prompt_settings = self.backbone, settings
        size, patch = backbone.pixels.image_size, backbone.patch_size
        kind = "none" if settings.kind in ("vpt", "deep") else settings.kind
        device = next(self.backbone.parameters()).device
        self.prompt = build_prompt(kind, size, patch, settings.width, settings.border, generator).to(device)
        self.tokens = None
        if settings.kind in ("vpt", "deep"):
            backbone.check_takes_tokens()
            tokens = DeepTokens(
                backbone.depth, settings.tokens, backbone.dim, patch, generator, settings.kind == "deep"
            )
            self.tokens = tokens.to(device)
        with torch.no_grad():
            for values in self.group("prompt"):
                values.mul_(settings.noise)

    @property
    def has_prompts(self) -> bool:
        """True if there are pixel prompts or deep prompt tokens."""
        return len(self.prompt.parts) > 0 or self.tokens is not None

    def with_prompt(
        self, patches: Float[Tensor, "n *patches dim"], images: Float[Tensor, "n 3 h w"]
    ) -> Float[Tensor, "n *patches dim"]:
        """Compute the patch embeddings of the prompted images from those of the images."""
        if len(self.prompt.parts) == 0:
            return patches
        return self.backbone.with_picture(patches, images, self.prompt.delta())

    def features(self, images: Float[Tensor, "n 3 h w"], prompted: bool = True) -> Float[Tensor, "n dim"]:
        """Compute the features of the images: the backbone's class token."""
        if not prompted:
            features: Tensor = self.backbone(images)
            return features
        tokens = None if self.tokens is None else self.tokens.values
        patches = self.with_prompt(self.backbone.embed(images), images)
        return self.backbone.finish(self.backbone.run_to_last_block(patches, tokens), tokens)

    def finish(self, tokens: Float[Tensor, "n length dim"]) -> dict[str, Tensor]:
        """Compute all outputs from the input of the last block."""
        return self.outputs(self.backbone.finish(tokens))

    def outputs(
        self, features: Float[Tensor, "n dim"], of_tokens: Float[Tensor, "n dim"] | None = None
    ) -> dict[str, Tensor]:
        """Outputs by name: projections, logits, features, and those of prompt tokens if they are given."""
        projections, logits = self.head(features)
        outputs = {"projections": projections, "logits": logits, "features": features}
        if of_tokens is not None:
            assert isinstance(self.head, TwinHead)
            outputs |= {"token_features": of_tokens, "token_projections": self.head.project_tokens(of_tokens)}
        return outputs

    def forward(
        self, images: Float[Tensor, "n 3 h w"], prompted: bool = True
    ) -> tuple[Float[Tensor, "n bottleneck"], Float[Tensor, "n k"]]:
        """Compute projections and logits of the images."""
        projections, logits = self.head(self.features(images, prompted))
        return projections, logits

    def group(self, name: Group) -> list[nn.Parameter]:
        """Parameters of one of the two groups that phases train: the prompts, or the last blocks and the head."""
        if name == "prompt":
            tokens = [] if self.tokens is None else list(self.tokens.parameters())
            return [*self.prompt.parameters(), *tokens]
        return [*self.backbone.last_blocks(self.trainable_blocks), *self.head.parameters()]

    def train_only(self, groups: frozenset[Group]) -> None:
        """Enable gradients for these groups and freeze all other parameters."""
        self.requires_grad_(False)
        for name in groups:
            for parameter in self.group(name):
                parameter.requires_grad_(True)
