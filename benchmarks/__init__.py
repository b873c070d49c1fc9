"""Measurements behind every statement about speed, memory and quality."""
