"""Tuning: the model's cheapest schedules are measured on the GPU that is here, and the result is remembered."""
