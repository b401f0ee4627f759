"""Quantisation-aware training of networks that PyTorch modules describe."""
