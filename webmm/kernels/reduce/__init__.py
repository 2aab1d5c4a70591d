"""Reductions: the stages of their ladder."""
