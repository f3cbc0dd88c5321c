"""The one room that knows numba-cuda's peculiarities, to be replaced as a whole with it.

`device` is the compiler and its simulator, `names` the device functions that kernels call (`blocks`, `pairs`, `vectors`
and `arithmetic` make them), `compile` turns programs into PTX, `driver` starts that, `arrays` takes and gives memory on
the device, `run` puts them together. Nothing else imports numba.cuda; generated source says ``cuda.blockIdx.x``.
"""
