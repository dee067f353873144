package loadgen

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// clockTick is the unit of /proc/PID/stat, USER_HZ, which Linux fixes at 100.
const clockTick = 100

// cpuSeconds is the user and system time of a process and its threads so far.
func cpuSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("--cpu: process %d: %w", pid, err)
	}
	i := bytes.LastIndexByte(b, ')') // the name may hold anything
	if i < 0 {
		return 0, fmt.Errorf("--cpu: process %d: no process name in its stat file", pid)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("--cpu: process %d: a stat file of %d fields", pid, len(f))
	}
	user, err1 := strconv.ParseInt(string(f[11]), 10, 64)
	sys, err2 := strconv.ParseInt(string(f[12]), 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("--cpu: process %d: its times are no numbers", pid)
	}
	return float64(user+sys) / clockTick, nil
}

// cpuMeter measures processes between two moments.
type cpuMeter struct {
	pids  map[string]int
	start map[string]float64
}

func startCPU(pids map[string]int) (*cpuMeter, error) {
	m := &cpuMeter{pids: pids, start: map[string]float64{}}
	for name, pid := range pids {
		s, err := cpuSeconds(pid)
		if err != nil {
			return nil, err
		}
		m.start[name] = s
	}
	return m, nil
}

// perGiB adds CPU seconds per GiB of bytes to the report.
func (m *cpuMeter) perGiB(r *Report, bytes int64) {
	for name, pid := range m.pids {
		end, err := cpuSeconds(pid)
		if err != nil || bytes == 0 {
			r.check("cpu "+name, false, "process %d could not be measured", pid)
			continue
		}
		r.Throughput.CPUPerGiB[name] = (end - m.start[name]) / (float64(bytes) / (1 << 30))
	}
}
