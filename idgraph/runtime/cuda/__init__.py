"""The only package that depends on numba-cuda; another compiler would replace it as a whole.

`device` is the compiler and its simulator, `names` the device functions that kernels call (`blocks`, `pairs`, `vectors`
and `arithmetic` make them), `compile` turns programs into PTX, `driver` starts it, `arrays` takes and gives memory on
the device, `run` puts them together. Nothing else imports numba.cuda; generated source says ``cuda.blockIdx.x``.
"""
