"""Recorded traffic of a real vLLM, and what makes it again."""
