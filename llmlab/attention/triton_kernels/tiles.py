"""What every kernel here needs: a tile in, a tile out, and bf16 rounded right."""

from llmlab.attention.triton_runtime import import_triton

triton, tl = import_triton()


@triton.jit
def load_tile(
    base,  # where row 0, column 0 is
    rows,  # [R] row numbers
    columns,  # [C] column numbers
    row_stride,  # how many elements further the next row begins
    column_stride,
    row_count,  # rows and columns from here on are not there: they are read as 0
    column_count,
):
    """A tile [R, C] of a matrix in HBM, anywhere and of any strides."""
    # A long cache has more elements than 32 bits count, so offsets are 64 bits wide.
    offsets = rows[:, None].to(tl.int64) * row_stride
    offsets += columns[None, :].to(tl.int64) * column_stride
    there = (rows[:, None] < row_count) & (columns[None, :] < column_count)
    return tl.load(base + offsets, mask=there, other=0)


@triton.jit
def store_tile(
    base,
    rows,
    columns,
    row_stride,
    column_stride,
    row_count,
    column_count,
    values,  # [R, C] in fp32
    INTERPRETED: tl.constexpr,
):
    """The tile goes back, rounded to the dtype of the matrix; nothing past the edge is written."""
    offsets = rows[:, None].to(tl.int64) * row_stride
    offsets += columns[None, :].to(tl.int64) * column_stride
    there = (rows[:, None] < row_count) & (columns[None, :] < column_count)
    if INTERPRETED and base.dtype.element_ty == tl.bfloat16:
        values = round_to_bfloat16(values)
    tl.store(base + offsets, values.to(base.dtype.element_ty), mask=there)


@triton.jit
def round_to_bfloat16(x):
    """fp32 numbers that bf16 can hold, each the nearest (ties to even).

    bf16 is the upper half of fp32's bits. A GPU rounds when it converts; the interpreter cuts the
    lower half off, which would double the error, so it is given numbers whose lower half is zero.
    """
    bits = x.to(tl.int32, bitcast=True)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & -65536).to(tl.float32, bitcast=True)


@triton.jit
def for_dot(x, INTERPRETED: tl.constexpr):
    """A tile as `tl.dot` takes it: as it is on a GPU, in fp32 in the interpreter, whose 16-bit
    products are wrong (bf16) or rounded more than a tensor core rounds (fp16)."""
    return x.to(tl.float32) if INTERPRETED else x
