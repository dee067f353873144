package quorum

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"
)

// sealedSnapshots puts a checksum of what raft keeps beside a snapshot (which entries it stands for, who votes) into the snapshot,
// which has a checksum of its own: raft trusts its meta.json, and one that claims more would skip entries.
type sealedSnapshots struct {
	raft.SnapshotStore
	dir string
}

// sealMagic begins a snapshot with a seal: this, then 4 bytes CRC-32C. One without is of a version before there were any.
const sealMagic = "STETSEAL"

func sealOf(m *raft.SnapshotMeta) uint32 {
	b := binary.BigEndian.AppendUint64(nil, uint64(m.Version))
	for _, n := range []uint64{m.Index, m.Term, m.ConfigurationIndex} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return crc32.Checksum(append(b, raft.EncodeConfiguration(m.Configuration)...), castagnoli)
}

// Create implements raft.SnapshotStore.
func (s sealedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, conf, confIndex, trans)
	if err != nil {
		return nil, err
	}
	sum := sealOf(&raft.SnapshotMeta{Version: version, Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex})
	if _, err := sink.Write(binary.BigEndian.AppendUint32([]byte(sealMagic), sum)); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
}

// Open implements raft.SnapshotStore.
func (s sealedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, rc, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	r := bufio.NewReader(rc)
	if head, _ := r.Peek(len(sealMagic) + 4); len(head) == len(sealMagic)+4 && string(head[:len(sealMagic)]) == sealMagic {
		if binary.BigEndian.Uint32(head[len(sealMagic):]) != sealOf(m) {
			_ = rc.Close()
			return nil, nil, fmt.Errorf("quorum: snapshot %s in %s: meta.json is not what was written", id, s.dir)
		}
		_, _ = r.Discard(len(head))
		m.Size -= int64(len(head))
	}
	return m, readCloser{r, rc}, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}
