"""Checks of the promises that every process keeps, for users' own ones too."""

from tff_ssl.testing.process_checks import CHECKS, all_checks, run_check
from tff_ssl.testing.tiny_problems import TinyProblem

__all__ = ['CHECKS', 'TinyProblem', 'all_checks', 'run_check']
