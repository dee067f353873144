package log

import "path/filepath"

// DirInfo is one log directory (DescribeLogDirs).
type DirInfo struct {
	Dir           string
	Err           error // of the directory: none of its partitions works
	Total, Usable int64 // bytes of the volume, -1: unknown
	Partitions    []PartitionSize
}

// PartitionSize is the size of one partition in bytes.
type PartitionSize struct {
	Topic     string
	Partition int32
	Size      int64
}

// DirSizes tells the sizes of all directories and partitions.
func (m *Manager) DirSizes() []DirInfo {
	logs := m.Logs()
	out := make([]DirInfo, 0, len(m.dirs))
	for _, d := range m.dirs {
		info := DirInfo{Dir: d.path, Err: d.err(), Total: -1, Usable: -1}
		if info.Err == nil {
			info.Total, info.Usable = volume(d.path)
		}
		for _, l := range logs {
			if filepath.Dir(l.dir) == d.path {
				info.Partitions = append(info.Partitions, PartitionSize{l.tp.topic, l.tp.partition, l.Size()})
			}
		}
		out = append(out, info)
	}
	return out
}
