// kernels::softmax_strided, _strided_online and _strided_tuned: torch's tensors in, the launchers of
// strided.h out. Each works along a dim that need not be the last; the output is contiguous.
#include "../common/stable_cuda.h"
#include "rows.h"
#include "strided.h"
#include "tuned.h"

namespace kernels::softmax {
namespace {

// Elements between neighbours of dims first to last - 1 taken as one, or -1 where they are not evenly spaced;
// `none` where there is but one.
int64_t even_stride(const Tensor& x, int64_t first, int64_t last, int64_t none) {
  int64_t stride = none, count = 1;
  for (int64_t d = last - 1; d >= first; --d) {
    if (x.size(d) == 1) continue;
    if (count == 1) stride = x.stride(d);
    if (x.stride(d) != stride * count) return -1;
    count *= x.size(d);
  }
  return stride;
}

int64_t count_of(const Tensor& x, int64_t first, int64_t last) {
  int64_t count = 1;
  for (int64_t d = first; d < last; ++d) count *= x.size(d);
  return count;
}

// x as [outer, length, inner] without a copy; stride or pitch is negative where that cannot be.
Strided seen(const Tensor& x, Tensor& y, int64_t dim) {
  const int64_t dims = x.dim(), inner = count_of(x, dim + 1, dims), length = x.size(dim);
  const int64_t pitch = length == 1 ? inner : x.stride(dim);
  const bool dense = even_stride(x, dim + 1, dims, 1) == 1;
  const int64_t stride = dense ? even_stride(x, 0, dim, pitch * length) : -1;
  return {x.data_ptr(), y.data_ptr(), count_of(x, 0, dim), length,           inner,
          stride,       pitch,        dtype_of(x),         current_stream(x)};
}

// Calls `launch(task)` and returns the output.
template <typename Launch>
Tensor launched(const Tensor& x, int64_t dim, const char* name, Launch&& launch) {
  check(dim >= 0 && dim < x.dim(), std::string(name) + " takes a dim from 0 to the number of dims - 1.");
  const DeviceGuard guard(x.get_device_index());
  Tensor y = empty_contiguous(x);
  if (x.numel() == 0) return y;
  Strided task = seen(x, y, dim);
  if (task.stride >= 0 && task.pitch >= 0) {
    check_launch(launch(task), name);
    return y;
  }
  const Tensor dense = contiguous_copy(x);
  check_launch(launch(seen(dense, y, dim)), name);
  return y;
}

// A tile in registers where one fits, else two reads.
cudaError_t in_tiles(const Strided& task, int64_t chunk, int64_t block) {
  const Tile tile = tile_for(task, static_cast<int>(chunk), static_cast<int>(block));
  return tile.cluster > 0 ? strided_tiles(task, tile) : strided_online(task, kOnlineChunk);
}

cudaError_t in_vectors(const Tensor& x, const Strided& task, const StreamTile& tile) {
  if (!tile.ahead) return strided_stream(task, tile, nullptr);
  const Tensor taken = empty_bytes(x, sizeof(unsigned));
  return strided_stream(task, tile, static_cast<unsigned*>(taken.data_ptr()));
}

// The tiles' arithmetic is of powers of two.
void check_chunk(int64_t chunk, const char* name) {
  check(chunk == 32 || chunk == 64 || chunk == 128,
        std::string(name) + " takes a chunk of 32, 64 or 128 bytes.");
}

Tensor strided(const Tensor& x, int64_t dim, int64_t chunk, int64_t block) {
  check_chunk(chunk, "softmax_strided");
  check(block == 0 || block == 64 || block == 128 || block == 256 || block == 512,
        "softmax_strided takes a block of 64, 128, 256 or 512 threads, or 0 to choose.");
  return launched(x, dim, "softmax_strided",
                  [&](const Strided& task) { return in_tiles(task, chunk, block); });
}

// A tile in registers, a row of words in shared memory, or two reads.
cudaError_t streamed(const Tensor& x, const Strided& task, int64_t chunk, bool ahead) {
  const StreamTile tile = stream_tile_for(task, static_cast<int>(chunk), ahead);
  if (tile.threads > 0) return in_vectors(x, task, tile);
  return fits_words(task) ? strided_words(task) : strided_online(task, kOnlineChunk);
}

Tensor stream(const Tensor& x, int64_t dim, int64_t chunk, bool ahead) {
  check_chunk(chunk, "softmax_strided_stream");
  return launched(x, dim, "softmax_strided_stream",
                  [&](const Strided& task) { return streamed(x, task, chunk, ahead); });
}

Tensor cluster(const Tensor& x, int64_t dim, int64_t blocks, int64_t columns) {
  const std::string name = "softmax_strided_cluster";
  check(blocks >= 0 && blocks <= 16, name + " takes a cluster of 1 to 16 blocks, or 0 to choose.");
  check(columns == 0 || columns == 16 || columns == 32 || columns == 64 || columns == 128 || columns == 256,
        name + " takes 16, 32, 64, 128 or 256 bytes of columns, or 0 to choose.");
  return launched(x, dim, "softmax_strided_cluster", [&](const Strided& task) {
    const StreamTile tile =
        strided_cluster_tile_for(task, static_cast<int>(blocks), static_cast<int>(columns));
    const bool asked = blocks > 0 || columns > 0;
    return tile.threads > 0 || asked ? strided_cluster(task, tile) : streamed(x, task, kStridedChunk, false);
  });
}

Tensor online(const Tensor& x, int64_t dim, int64_t chunk) {
  check_chunk(chunk, "softmax_strided_online");
  return launched(x, dim, "softmax_strided_online",
                  [&](const Strided& task) { return strided_online(task, static_cast<int>(chunk)); });
}

Tensor tuned(const Tensor& x, int64_t dim) {
  return launched(x, dim, "softmax_strided_tuned", [&](const Strided& task) {
    switch (strided_design_for(task)) {
      case StridedDesign::kStream:
        return in_vectors(x, task, tuned_tile_for(task));
      case StridedDesign::kWords:
        return strided_words(task);
      default:
        return in_tiles(task, kStridedChunk, kStridedBlock);
    }
  });
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("softmax_strided(Tensor x, int dim, int chunk, int block) -> Tensor");
  m.def("softmax_strided_stream(Tensor x, int dim, int chunk, bool ahead) -> Tensor");
  m.def("softmax_strided_cluster(Tensor x, int dim, int cluster, int columns) -> Tensor");
  m.def("softmax_strided_online(Tensor x, int dim, int chunk) -> Tensor");
  m.def("softmax_strided_tuned(Tensor x, int dim) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("softmax_strided", TORCH_BOX(&strided));
  m.impl("softmax_strided_stream", TORCH_BOX(&stream));
  m.impl("softmax_strided_cluster", TORCH_BOX(&cluster));
  m.impl("softmax_strided_online", TORCH_BOX(&online));
  m.impl("softmax_strided_tuned", TORCH_BOX(&tuned));
}

}  // namespace
}  // namespace kernels::softmax
