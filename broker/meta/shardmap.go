package meta

import "hash/maphash"

const shardCount = 64

var shardSeed = maphash.MakeSeed()

// shardMap is a map that can be copied cheaply: a copy shares all shards, and
// the first write to a shard after a copy clones that shard only. The zero value
// is an empty map.
type shardMap[K comparable, V any] struct {
	shards [shardCount]*shard[K, V]
	n      int
}

type shard[K comparable, V any] struct {
	owner *edit // the edit that may write in place
	m     map[K]V
}

// edit is a token that lives as long as one Apply.
type edit struct{ _ byte }

func shardOf[K comparable](k K) int { return int(maphash.Comparable(shardSeed, k) % shardCount) }

func (s *shardMap[K, V]) get(k K) (V, bool) {
	sh := s.shards[shardOf(k)]
	if sh == nil {
		var zero V
		return zero, false
	}
	v, ok := sh.m[k]
	return v, ok
}

func (s *shardMap[K, V]) writable(e *edit, k K) map[K]V {
	i := shardOf(k)
	sh := s.shards[i]
	if sh != nil && sh.owner == e {
		return sh.m
	}
	m := make(map[K]V)
	if sh != nil {
		m = make(map[K]V, len(sh.m)+1)
		for k, v := range sh.m {
			m[k] = v
		}
	}
	s.shards[i] = &shard[K, V]{owner: e, m: m}
	return m
}

func (s *shardMap[K, V]) set(e *edit, k K, v V) {
	m := s.writable(e, k)
	if _, ok := m[k]; !ok {
		s.n++
	}
	m[k] = v
}

func (s *shardMap[K, V]) remove(e *edit, k K) {
	if _, ok := s.get(k); ok {
		delete(s.writable(e, k), k)
		s.n--
	}
}

// each calls f for all entries in no order, until it returns false.
func (s *shardMap[K, V]) each(f func(K, V) bool) {
	for _, sh := range s.shards {
		if sh == nil {
			continue
		}
		for k, v := range sh.m {
			if !f(k, v) {
				return
			}
		}
	}
}
