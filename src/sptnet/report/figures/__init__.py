"""The paper's figures from any runs: t-SNE, attention by head, prompts, accuracy against a setting, count curves."""
