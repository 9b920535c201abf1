"""Ablation studies: one thing is varied, everything else stays, and the paper's figures stand beside ours.

A *study* is data: the question it answers, its *settings* (each an ordinary bench run in a folder of its own), and a
pure function from what the settings measured to *findings* (charts, tables, sentences). Starts no process, draws
nothing; figures of papers come from papers.yaml only.
"""

from specnav.bench.studies.catalogue import STUDIES, study_named, study_names

__all__ = ["STUDIES", "study_named", "study_names"]
