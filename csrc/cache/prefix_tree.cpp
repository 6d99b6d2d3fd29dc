#include "cache/prefix_tree.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace onward {
namespace {

constexpr int64_t kTokens = CacheLayout::kBlockTokens;

size_t at(int64_t index) { return static_cast<size_t>(index); }

// FNV-1a over the tokens, started from the hash of the prefix before them.
uint64_t chained_hash(uint64_t hash, const int32_t* tokens, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

int64_t common(const std::vector<int32_t>& a, const int32_t* b, int64_t count) {
  const int64_t most = std::min(count, static_cast<int64_t>(a.size()));
  int64_t same = 0;
  while (same < most && a[at(same)] == b[same]) ++same;
  return same;
}

}  // namespace

struct PrefixTree::Node {
  Node* parent = nullptr;
  uint64_t hash = 0xcbf29ce484222325;
  std::vector<int32_t> tokens;       // of a block; fewer in a leaf where a sequence ended
  std::vector<Block*> exact, coded;  // by group; null: not kept
  std::vector<std::unique_ptr<Node>> children;
  int64_t used = 0;        // by the clock
  int64_t exact_used = 0;  // its exact blocks

  bool is_exact() const { return std::find(exact.begin(), exact.end(), nullptr) == exact.end(); }
  bool holds_nothing() const {
    const auto absent = [](const Block* block) { return block == nullptr; };
    return std::all_of(exact.begin(), exact.end(), absent) &&
           std::all_of(coded.begin(), coded.end(), absent);
  }
  Block*& block(int64_t group, BlockStore::Kind kind) {
    return (kind == BlockStore::kExact ? exact : coded)[at(group)];
  }
};

// The nodes below the root that match, and the number of matching tokens. Every node but the last
// matches as a whole.
struct PrefixTree::Path {
  std::vector<Node*> nodes;
  int64_t tokens = 0;
};

PrefixTree::PrefixTree(BlockStore& store) : store_(store), root_(std::make_unique<Node>()) {}

PrefixTree::~PrefixTree() { clear(); }

PrefixTree::Node* PrefixTree::child(const Node& parent, uint64_t hash, const int32_t* tokens,
                                    int64_t count) const {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto found = first; found != last; ++found) {
    Node* node = found->second;
    if (node->parent == &parent && common(node->tokens, tokens, count) == count) return node;
  }
  return nullptr;
}

PrefixTree::Path PrefixTree::find(const std::vector<int32_t>& tokens, int64_t limit) const {
  Path path;
  const Node* parent = root_.get();
  uint64_t hash = parent->hash;
  while (path.tokens + kTokens <= limit) {
    const int32_t* next = tokens.data() + path.tokens;
    hash = chained_hash(hash, next, kTokens);
    Node* node = child(*parent, hash, next, kTokens);
    if (node == nullptr) break;
    path.nodes.push_back(node);
    path.tokens += kTokens;
    parent = node;
  }
  // Part of a block: from the child with the longest match. Exact children are preferred, because a
  // sequence cannot resume inside a coded block.
  Node* best = nullptr;
  int64_t most = 0;
  for (const auto& node : parent->children) {
    const int64_t same = common(node->tokens, tokens.data() + path.tokens, limit - path.tokens);
    if (same > most || (same == most && same > 0 && !best->is_exact() && node->is_exact())) {
      most = same;
      best = node.get();
    }
  }
  if (best != nullptr) path.nodes.push_back(best);
  path.tokens += most;
  return path;
}

int64_t PrefixTree::usable(const Path& path, int64_t limit) const {
  const CacheLayout& layout = store_.layout();
  const int64_t most = std::min(path.tokens, limit);
  const int64_t blocks = layout.blocks_for(most);
  // By group: the block before which nodes have no exact block, and before which they have none.
  std::vector<std::vector<int64_t>> exact_from(at(layout.num_groups())), any_from = exact_from;
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    int64_t exact = 0, any = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      Node& node = *path.nodes[at(block)];
      const bool is_exact = node.exact[at(group)] != nullptr;
      if (!is_exact) exact = block + 1;
      if (!is_exact && node.coded[at(group)] == nullptr) any = block + 1;
      exact_from[at(group)].push_back(exact);
      any_from[at(group)].push_back(any);
    }
  }
  for (int64_t last = blocks - 1; last >= 0; --last) {
    const int64_t tokens = std::min(most, (last + 1) * kTokens);
    const int64_t own = tokens / kTokens;  // the block of the next token
    bool good = true;
    for (int64_t group = 0; group < layout.num_groups() && good; ++group) {
      const int64_t seen = first_seen_block(layout, group, tokens);
      if (seen > last && !keeps_first_block(layout, group)) continue;
      const Node& first = *path.nodes[0];
      const bool needs_first = keeps_first_block(layout, group) || seen < layout.coded_begin();
      if (needs_first && first.exact[at(group)] == nullptr) good = false;
      const int64_t exact_seen = std::max(seen, layout.coded_end(own));
      const int64_t any_seen = std::max(seen, layout.coded_begin());
      if (exact_seen <= last && exact_from[at(group)][at(last)] > exact_seen) good = false;
      if (any_seen <= last && any_from[at(group)][at(last)] > any_seen) good = false;
    }
    if (good) return tokens;
  }
  return 0;
}

int64_t PrefixTree::match(const std::vector<int32_t>& tokens, int64_t limit) const {
  return usable(find(tokens, limit), limit);
}

int64_t PrefixTree::known(const std::vector<int32_t>& tokens, int64_t limit) const {
  return find(tokens, limit).tokens;
}

int64_t PrefixTree::shared_bytes(const std::vector<int32_t>& tokens, int64_t limit) const {
  const Path path = find(tokens, limit);
  const int64_t blocks = store_.layout().blocks_for(usable(path, limit));
  int64_t bytes = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    bytes += bytes_if(*path.nodes[at(block)], [](const Block& b) { return !b.only_kept(); });
  }
  return bytes;
}

SequenceBlocks PrefixTree::reuse(const std::vector<int32_t>& tokens, int64_t limit) {
  const CacheLayout& layout = store_.layout();
  const Path path = find(tokens, limit);
  const int64_t count = usable(path, limit);
  SequenceBlocks place(store_);
  if (count == 0) return place;
  ++clock_;
  const int64_t blocks = layout.blocks_for(count);
  const int64_t coded_end = layout.coded_end(count / kTokens);
  for (int64_t block = 0; block < blocks; ++block) {
    Node& node = *path.nodes[at(block)];
    node.used = clock_;
    for (int64_t group = 0; group < layout.num_groups(); ++group) {
      const int64_t seen = first_seen_block(layout, group, count);
      const bool first = block == 0 && keeps_first_block(layout, group);
      if (block < seen && !first) continue;
      const bool as_codes = block >= layout.coded_begin() && block < coded_end;
      if (as_codes && node.coded[at(group)] != nullptr) {
        place.hold(group, BlockStore::kCoded, block, BlockStore::share(node.coded[at(group)]));
      } else {
        place.hold(group, BlockStore::kExact, block, BlockStore::share(node.exact[at(group)]));
        node.exact_used = clock_;
      }
    }
  }
  place.resume(count);
  return place;
}

void PrefixTree::remember(const std::vector<int32_t>& tokens, const SequenceBlocks& place,
                          int64_t count) {
  const CacheLayout& layout = store_.layout();
  const int64_t coded_end = layout.coded_end(count / kTokens);
  ++clock_;
  Node* node = root_.get();
  uint64_t hash = node->hash;
  for (int64_t begin = 0; begin < count; begin += kTokens) {
    const int32_t* own = tokens.data() + begin;
    const int64_t size = std::min(kTokens, count - begin);
    const int64_t block = begin / kTokens;
    hash = chained_hash(hash, own, size);
    Node& parent = *node;
    node = &add(parent, hash, own, size);
    node->used = clock_;
    for (int64_t group = 0; group < layout.num_groups(); ++group) {
      const bool as_codes = block >= layout.coded_begin() && block < coded_end;
      Block* coded = place.coded(group, block);
      Block* exact = place.exact(group, block);
      if (coded != nullptr) hold(*node, group, BlockStore::kCoded, coded);
      if (exact == nullptr || (as_codes && coded != nullptr)) continue;
      hold(*node, group, BlockStore::kExact, exact);
      node->exact_used = clock_;
    }
    // A leaf where a shorter sequence ended is a part of this block.
    for (size_t i = parent.children.size(); i-- > 0;) {
      if (covers(*node, *parent.children[i])) forget(*parent.children[i]);
    }
  }
}

bool PrefixTree::covers(const Node& node, const Node& part) const {
  const auto size = static_cast<int64_t>(part.tokens.size());
  if (size >= static_cast<int64_t>(node.tokens.size())) return false;
  if (common(node.tokens, part.tokens.data(), size) < size) return false;
  for (size_t group = 0; group < node.exact.size(); ++group) {
    if (part.exact[group] != nullptr && node.exact[group] == nullptr) return false;
  }
  return true;
}

PrefixTree::Node& PrefixTree::add(Node& parent, uint64_t hash, const int32_t* tokens,
                                  int64_t count) {
  if (count == kTokens) {
    if (Node* node = child(parent, hash, tokens, count)) return *node;
  } else {
    for (const auto& node : parent.children) {
      const bool whole = static_cast<int64_t>(node->tokens.size()) == count;
      if ((whole || node->is_exact()) && common(node->tokens, tokens, count) == count) return *node;
    }
  }
  auto fresh = std::make_unique<Node>();
  fresh->parent = &parent;
  fresh->hash = hash;
  fresh->tokens.assign(tokens, tokens + count);
  fresh->exact.resize(at(store_.layout().num_groups()));
  fresh->coded.resize(fresh->exact.size());
  Node& node = *fresh;
  parent.children.push_back(std::move(fresh));
  if (count == kTokens) by_hash_.emplace(hash, &node);
  return node;
}

void PrefixTree::hold(Node& node, int64_t group, BlockStore::Kind kind, Block* block) {
  if (node.block(group, kind) != nullptr) return;
  node.block(group, kind) = BlockStore::share(block);
  if (block->kept++ == 0) bytes_ += store_.block_bytes(group, kind);
}

void PrefixTree::let_go(Node& node, int64_t group, BlockStore::Kind kind) {
  Block*& block = node.block(group, kind);
  if (block == nullptr) return;
  if (--block->kept == 0) bytes_ -= store_.block_bytes(group, kind);
  store_.give_back(group, kind, block);
  block = nullptr;
}

// Whether dropping the exact blocks that have codes would free memory.
bool PrefixTree::frees_exact(const Node& node) {
  for (size_t group = 0; group < node.exact.size(); ++group) {
    const Block* exact = node.exact[group];
    if (exact != nullptr && exact->only_kept() && node.coded[group] != nullptr) return true;
  }
  return false;
}

void PrefixTree::let_go_of_exact(Node& node) {
  for (int64_t group = 0; group < store_.layout().num_groups(); ++group) {
    if (node.coded[at(group)] != nullptr) let_go(node, group, BlockStore::kExact);
  }
}

void PrefixTree::let_go_of_kept(Node& node) {
  for (int64_t group = 0; group < store_.layout().num_groups(); ++group) {
    for (const auto kind : {BlockStore::kExact, BlockStore::kCoded}) {
      const Block* block = node.block(group, kind);
      if (block != nullptr && block->only_kept()) let_go(node, group, kind);
    }
  }
}

void PrefixTree::forget(Node& leaf) {
  for (int64_t group = 0; group < store_.layout().num_groups(); ++group) {
    let_go(leaf, group, BlockStore::kExact);
    let_go(leaf, group, BlockStore::kCoded);
  }
  const auto [first, last] = by_hash_.equal_range(leaf.hash);
  for (auto found = first; found != last; ++found) {
    if (found->second != &leaf) continue;
    by_hash_.erase(found);
    break;
  }
  Node& parent = *leaf.parent;
  const auto is_leaf = [&](const auto& node) { return node.get() == &leaf; };
  parent.children.erase(std::find_if(parent.children.begin(), parent.children.end(), is_leaf));
}

// A leaf, and the nodes that only led to it and whose blocks have left every window.
void PrefixTree::forget_branch(Node& leaf) {
  Node* parent = leaf.parent;
  forget(leaf);
  while (parent != root_.get() && parent->children.empty() && parent->holds_nothing()) {
    Node* const above = parent->parent;
    forget(*parent);
    parent = above;
  }
}

template <typename Visit>
void PrefixTree::visit(const Visit& visit) const {
  std::vector<Node*> open = {root_.get()};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (node != root_.get()) visit(*node);
    for (const auto& child : node->children) open.push_back(child.get());
  }
}

bool PrefixTree::evict() {
  const auto alone = [](const std::vector<Block*>& blocks) {
    return std::any_of(blocks.begin(), blocks.end(),
                       [](const Block* block) { return block != nullptr && block->only_kept(); });
  };
  Node* oldest = nullptr;
  Node* oldest_inner = nullptr;
  bool exact_only = false;
  int64_t since = clock_ + 1, inner_since = since;
  visit([&](Node& node) {
    if (frees_exact(node) && node.exact_used < since) {
      since = node.exact_used;
      oldest = &node;
      exact_only = true;
    }
    const bool leaf = node.children.empty();
    if (node.used >= (leaf ? since : inner_since)) return;
    if (!alone(node.exact) && !alone(node.coded)) return;
    if (!leaf) {
      inner_since = node.used;
      oldest_inner = &node;
      return;
    }
    since = node.used;
    oldest = &node;
    exact_only = false;
  });
  if (oldest == nullptr && oldest_inner == nullptr) return false;
  ++evictions_;
  if (oldest == nullptr) {
    let_go_of_kept(*oldest_inner);
  } else if (exact_only) {
    let_go_of_exact(*oldest);
  } else {
    forget_branch(*oldest);
  }
  return true;
}

void PrefixTree::clear() {
  visit([&](Node& node) {
    for (int64_t group = 0; group < store_.layout().num_groups(); ++group) {
      let_go(node, group, BlockStore::kExact);
      let_go(node, group, BlockStore::kCoded);
    }
  });
  by_hash_.clear();
  // One by one: destroying the root would recurse as deep as the longest prefix.
  std::vector<std::unique_ptr<Node>> open = std::exchange(root_->children, {});
  while (!open.empty()) {
    std::unique_ptr<Node> node = std::move(open.back());
    open.pop_back();
    for (auto& child : node->children) open.push_back(std::move(child));
  }
}

int64_t PrefixTree::tokens() const {
  int64_t tokens = 0;
  visit([&](const Node& node) { tokens += static_cast<int64_t>(node.tokens.size()); });
  return tokens;
}

PrefixTree::Amount PrefixTree::evictable() const {
  std::unordered_set<const Block*> counted;  // two nodes may keep one block
  Amount amount;
  visit([&](const Node& node) {
    for (int64_t group = 0; group < store_.layout().num_groups(); ++group) {
      for (const auto kind : {BlockStore::kExact, BlockStore::kCoded}) {
        const Block* block = (kind == BlockStore::kExact ? node.exact : node.coded)[at(group)];
        if (block == nullptr || !block->only_kept() || !counted.insert(block).second) continue;
        ++amount.blocks;
        amount.bytes += store_.block_bytes(group, kind);
      }
    }
  });
  return amount;
}

template <typename Condition>
int64_t PrefixTree::bytes_if(const Node& node, const Condition& condition) const {
  int64_t bytes = 0;
  for (int64_t group = 0; group < store_.layout().num_groups(); ++group) {
    const Block* exact = node.exact[at(group)];
    const Block* coded = node.coded[at(group)];
    if (exact != nullptr && condition(*exact))
      bytes += store_.block_bytes(group, BlockStore::kExact);
    if (coded != nullptr && condition(*coded))
      bytes += store_.block_bytes(group, BlockStore::kCoded);
  }
  return bytes;
}

}  // namespace onward
