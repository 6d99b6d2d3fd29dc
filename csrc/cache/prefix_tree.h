// Computed prefixes that are kept for sequences that begin with the same tokens: a tree whose nodes
// are blocks of tokens, so that the path to a node spells a prefix. Nodes are found by a hash that is
// chained along the path, and their tokens are compared. A node is one more holder of its blocks. The
// least recently used nodes are dropped first.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cache/block_store.h"
#include "cache/sequence_blocks.h"

namespace onward {

class PrefixTree {
 public:
  explicit PrefixTree(BlockStore& store);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The longest prefix of at most `limit` tokens that a sequence can resume. With codes or a window
  // it can resume only where every block that the next token sees is kept.
  int64_t match(const std::vector<int32_t>& tokens, int64_t limit) const;
  // The number of tokens that the tree knows, whether or not a sequence can resume there.
  int64_t known(const std::vector<int32_t>& tokens, int64_t limit) const;
  // Bytes of the match that sequences hold, too.
  int64_t shared_bytes(const std::vector<int32_t>& tokens, int64_t limit) const;
  // The blocks of the match, shared with a new sequence.
  SequenceBlocks reuse(const std::vector<int32_t>& tokens, int64_t limit);
  // Keeps the blocks of a sequence that a token at position `count` sees. tokens: the computed
  // tokens, at least `count`. Unless `count` ends a block, the sequence must not write to that block
  // any more, because it is shared.
  void remember(const std::vector<int32_t>& tokens, const SequenceBlocks& place, int64_t count);

  // Drops the least recently used blocks that only the tree holds: a leaf, or the exact blocks of a
  // node that has codes. If there are none, it drops blocks of an inner node on the way to blocks
  // that sequences hold; that prefix can no longer be resumed. False when nothing is left.
  bool evict();
  void clear();

  int64_t bytes() const { return bytes_; }  // of all its blocks
  int64_t tokens() const;                   // of all nodes
  int64_t evictions() const { return evictions_; }
  struct Amount {
    int64_t blocks = 0;
    int64_t bytes = 0;
  };
  Amount evictable() const;  // blocks that only the tree holds

 private:
  struct Node;
  struct Path;

  Node* child(const Node& parent, uint64_t hash, const int32_t* tokens, int64_t count) const;
  Path find(const std::vector<int32_t>& tokens, int64_t limit) const;
  int64_t usable(const Path& path, int64_t limit) const;
  Node& add(Node& parent, uint64_t hash, const int32_t* tokens, int64_t count);
  void forget(Node& leaf);
  void forget_branch(Node& leaf);
  void hold(Node& node, int64_t group, BlockStore::Kind kind, Block* block);
  void let_go(Node& node, int64_t group, BlockStore::Kind kind);
  static bool frees_exact(const Node& node);
  void let_go_of_exact(Node& node);
  void let_go_of_kept(Node& node);
  bool covers(const Node& node, const Node& part) const;
  template <typename Condition>
  int64_t bytes_if(const Node& node, const Condition& condition) const;
  template <typename Visit>
  void visit(const Visit& visit) const;

  BlockStore& store_;
  std::unique_ptr<Node> root_;
  std::unordered_multimap<uint64_t, Node*> by_hash_;  // nodes of whole blocks
  int64_t clock_ = 0;
  int64_t bytes_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace onward
