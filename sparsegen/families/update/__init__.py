"""Families of schedules for general updates."""
