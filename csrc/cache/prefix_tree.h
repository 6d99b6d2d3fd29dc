// What was computed before, kept for whoever begins with the same tokens: a tree whose nodes are
// blocks of tokens, so that the path to a node spells a prefix. Nodes are found by a hash chained
// along the path, and their tokens compared. A node holds its blocks besides the sequences that do;
// the least recently used ones go first. Knows tokens and blocks, not requests.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cache/block_store.h"
#include "cache/cache_place.h"

namespace onward {

class PrefixTree {
 public:
  explicit PrefixTree(BlockStore& store);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The most of the first `limit` tokens that a sequence can begin with. Where codes or a window
  // are involved a prefix can be gone on from only where what the next token sees is all there.
  int64_t match(const std::vector<int32_t>& tokens, int64_t limit) const;
  // How many of them the tree knows, whether or not what a next token sees is there.
  int64_t known(const std::vector<int32_t>& tokens, int64_t limit) const;
  // Bytes of what is matched that sequences hold, too.
  int64_t shared_bytes(const std::vector<int32_t>& tokens, int64_t limit) const;
  // A place that begins with what matches, sharing the blocks.
  CachePlace reuse(const std::vector<int32_t>& tokens, int64_t limit);
  // Keeps what a token at position `count` sees of a place; tokens: those computed there, at least
  // `count`. Unless `count` ends a block, nobody may write to the place any more: the block is
  // shared.
  void remember(const std::vector<int32_t>& tokens, const CachePlace& place, int64_t count);

  // Lets go of what was not used for longest and whose memory nobody else holds: a leaf, or the
  // exact blocks of a node that has codes. Where there is nothing of the kind, of a node's blocks
  // on the way to what sequences hold too: nobody goes on from there then. False when nothing is
  // left.
  bool evict();
  void clear();

  int64_t bytes() const { return bytes_; }  // of its blocks, also held by sequences or not
  int64_t tokens() const;                   // of all nodes
  int64_t evictions() const { return evictions_; }
  struct Amount {
    int64_t blocks = 0;
    int64_t bytes = 0;
  };
  Amount evictable() const;  // what only the tree holds, and would be free without it

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
