"""The kernels. Importing this folder's modules imports Triton; `triton_attention` does it late."""
