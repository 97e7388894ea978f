"""Campaigns against the command line: kills, damaged inputs, hostile names and faults, seeded and counted.

    python -m tools.campaigns --minutes 30 --seed 0

docs/reliability.md says what is promised, SECURITY.md what is trusted.
"""
