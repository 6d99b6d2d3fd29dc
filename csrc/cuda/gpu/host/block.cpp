#include "cuda/gpu/host/block.h"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "base/buffer.h"
#include "base/half.h"
#include "cuda/gpu/runtime.h"

namespace onward::cuda::host {

thread_local Place* running_place = nullptr;

namespace {

constexpr size_t kStackBytes = size_t{128} << 10;

#if defined(__x86_64__)
// Saves the registers that a call must preserve on the old stack, and returns on the new stack.
extern "C" void onward_cuda_host_switch(void** left, void* entered);
asm(R"(
.text
.type onward_cuda_host_switch, @function
onward_cuda_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size onward_cuda_host_switch, .-onward_cuda_host_switch
)");

class Context {
 public:
  void begin(char* stack, void (*entry)()) {
    void** top = reinterpret_cast<void**>(stack + kStackBytes - 64);  // 16-byte aligned
    *--top = nullptr;  // a function expects 8 bytes off alignment, as after a call
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    at_ = top;
  }
  void enter(Context& from) { onward_cuda_host_switch(&from.at_, at_); }

 private:
  void* at_ = nullptr;
};
#else
class Context {
 public:
  void begin(char* stack, void (*entry)()) {
    getcontext(&at_);
    at_.uc_stack.ss_sp = stack;
    at_.uc_stack.ss_size = kStackBytes;
    at_.uc_link = nullptr;
    makecontext(&at_, entry, 0);
  }
  void enter(Context& from) { swapcontext(&from.at_, &at_); }

 private:
  ucontext_t at_;
};
#endif

struct Fibre;

struct Warp {
  Fibre* next[kLanes] = {};  // the lane that runs after each lane, in a ring
  int arrived = 0;
  uint64_t meetings = 0;
  alignas(16) char slots[2][kLanes * kSlotBytes];
};

struct Fibre {
  Context context;
  Place place;
  Warp* warp = nullptr;
  uint64_t exchanges = 0;
  uint64_t barriers = 0;
  bool ended = false;
};

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "cuda-host: %s\n", what);
  std::abort();  // a fault of the kernel; on a GPU it would hang
}

// The block that a host thread runs.
class Block {
 public:
  ~Block() {
    if (stacks_ != nullptr) munmap(stacks_, stack_bytes_);
  }

  void run(const Grid& grid, uint64_t seed, int64_t block, const std::function<void()>& thread) {
    const auto threads = static_cast<size_t>(grid.threads);
    prepare(threads, grid.shared_bytes);
    thread_ = &thread;
    std::minstd_rand random(
        static_cast<uint32_t>(seed * 2654435761u + static_cast<uint64_t>(block) + 1));
    for (size_t i = 0; i < threads; ++i) {
      Fibre& fibre = fibres_[i];
      fibre.context.begin(stacks_ + i * kStackBytes, &enter_thread);
      fibre.place.thread = {static_cast<uint32_t>(i), 0, 0};
      fibre.place.block = {static_cast<uint32_t>(block % grid.x),
                           static_cast<uint32_t>(block / grid.x % grid.y),
                           static_cast<uint32_t>(block / grid.x / grid.y)};
      fibre.place.block_size = {static_cast<uint32_t>(threads), 1, 1};
      fibre.place.grid_size = {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y),
                               static_cast<uint32_t>(grid.z)};
      fibre.warp = &warps_[i / kLanes];
      fibre.exchanges = fibre.barriers = 0;
      fibre.ended = false;
    }
    // A permutation of the warps, and one of the lanes.
    order_.resize(threads);
    const size_t warps = threads / kLanes;
    std::vector<size_t> warp_order(warps), lane_order(kLanes);
    for (size_t i = 0; i < warps; ++i) warp_order[i] = i;
    for (size_t i = 0; i < kLanes; ++i) lane_order[i] = i;
    std::shuffle(warp_order.begin(), warp_order.end(), random);
    std::shuffle(lane_order.begin(), lane_order.end(), random);
    for (size_t i = 0; i < threads; ++i) {
      order_[i] = warp_order[i / kLanes] * kLanes + lane_order[i % kLanes];
    }
    for (size_t i = 0; i < threads; ++i) {
      const size_t first = i / kLanes * kLanes;
      warps_[i / kLanes].next[lane_order[i % kLanes]] =
          &fibres_[first + lane_order[(i + 1) % kLanes]];
    }
    turns(threads);
  }

  char* shared() { return shared_.data<char>(); }

  void sync() {
    Fibre& fibre = *running_;
    ++fibre.barriers;
    if (++arrived_ == living_) {
      arrived_ = 0;
      ++barriers_;
      return;
    }
    while (barriers_ < fibre.barriers) leave();
  }

  const char* exchange(const void* value, size_t bytes, void (*together)(char*)) {
    Fibre& fibre = *running_;
    Warp& warp = *fibre.warp;
    // Two sets of slots alternate: a lane at the next exchange has read the slots of this one.
    char* slots = warp.slots[fibre.exchanges++ % 2];
    std::memcpy(slots + fibre.place.thread.x % kLanes * kSlotBytes, value, bytes);
    if (++warp.arrived == kLanes) {
      if (together != nullptr) together(slots);
      warp.arrived = 0;
      ++warp.meetings;
    }
    while (warp.meetings < fibre.exchanges) {
      // Usually the next lane has not arrived yet, so switch to it directly.
      Fibre& next = *warp.next[fibre.place.thread.x % kLanes];
      waits(next) ? leave() : enter(next, fibre.context);
    }
    return slots;
  }

 private:
  static void enter_thread();

  void prepare(size_t threads, size_t shared_bytes) {
    if (threads % kLanes != 0 || threads == 0) give_up("a block is not made of whole warps");
    if (threads > fibres_.size()) {
      if (stacks_ != nullptr) munmap(stacks_, stack_bytes_);
      stack_bytes_ = threads * kStackBytes;
      void* mapping = mmap(nullptr, stack_bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapping == MAP_FAILED) throw std::bad_alloc();
      stacks_ = static_cast<char*>(mapping);
      fibres_ = std::vector<Fibre>(threads);
    }
    warps_.assign(threads / kLanes, Warp{});
    living_ = static_cast<int>(threads);
    arrived_ = 0;
    barriers_ = 0;
    // Memory that was never written reads as NaN in every format.
    if (shared_.bytes() < shared_bytes) shared_ = AlignedBuffer(shared_bytes);
    if (shared_bytes > 0) std::memset(shared_.data(), 0xff, shared_bytes);
  }

  bool waits(const Fibre& fibre) const {
    return fibre.ended || barriers_ < fibre.barriers || fibre.warp->meetings < fibre.exchanges;
  }

  // Runs each warp as far as it can go, until all have ended.
  void turns(size_t threads) {
    while (living_ > 0) {
      bool moved = false;
      for (size_t first = 0; first < threads; first += kLanes) {
        for (bool again = true; again;) {
          again = false;
          for (size_t i = first; i < first + kLanes; ++i) {
            Fibre& fibre = fibres_[order_[i]];
            if (waits(fibre)) continue;
            enter(fibre, scheduler_);
            again = moved = true;
          }
        }
      }
      if (!moved) give_up("all threads of a block wait: a barrier or an exchange misses some");
    }
  }

  void enter(Fibre& fibre, Context& from) {
    running_ = &fibre;
    running_place = &fibre.place;
    fibre.context.enter(from);
  }
  void leave() { scheduler_.enter(running_->context); }

  const std::function<void()>* thread_ = nullptr;
  std::vector<Fibre> fibres_;
  std::vector<Warp> warps_;
  std::vector<size_t> order_;
  AlignedBuffer shared_;
  char* stacks_ = nullptr;
  size_t stack_bytes_ = 0;
  Context scheduler_;
  Fibre* running_ = nullptr;
  int living_ = 0;
  int arrived_ = 0;
  uint64_t barriers_ = 0;
};

thread_local std::unique_ptr<Block> this_block;

void Block::enter_thread() {
  Block& block = *this_block;
  (*block.thread_)();
  block.running_->ended = true;
  --block.living_;
  if (block.arrived_ > 0 && block.arrived_ == block.living_) {
    give_up("a thread has ended while others wait at a barrier");
  }
  block.leave();
}

}  // namespace

float half_value(uint16_t bits) { return f16_to_float(bits); }
void sync_block() { this_block->sync(); }
char* shared_memory() { return this_block->shared(); }
const char* exchange_bytes(const void* value, size_t bytes, void (*together)(char*)) {
  return this_block->exchange(value, bytes, together);
}

void run_grid(const Grid& grid, uint64_t seed, int64_t block, const std::function<void()>& thread) {
  if (!this_block) this_block = std::make_unique<Block>();
  this_block->run(grid, seed, block, thread);
}

}  // namespace onward::cuda::host
