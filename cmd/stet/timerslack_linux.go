package main

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Timer slack: how late the kernel may end a sleep of a thread, so as to end several at once.
const (
	monitorSlack = 1_000_000 // ns, of the runtime's monitor thread and, as it is inherited, of most others
	usualSlack   = 50_000    // ns, Linux's default, of the main thread and those that it starts

	// relaxed is set for the second execution, lest a system that takes a slack and does not keep it makes this go on for ever.
	relaxed = "STET_MONITOR_RELAXED"
)

// relaxMonitor makes the Go runtime's monitor thread sleep longer. Whenever all of a process has waited, the first system
// call wakes that thread, and it then looks around every 20 us: at a few thousand requests per second on cores that are
// otherwise idle that was a fifth of a broker's CPU. Go has no setting for it, but the slack of a thread is inherited by
// the threads that it starts and kept by exec, and the monitor is started before main: so the program
// executes itself once with a larger slack. The
// monitor still does its work (pre-emption, taking processors from threads that block) within 1 ms,
// which is well below the 10 ms that the runtime itself allows. What cannot be set is left as it is.
//
// The main thread takes the slack back, but the runtime has started threads before main and starts most later ones from
// those or from the monitor, so nearly all keep 1 ms: timers of the broker (lingers, throttles, retries, the longest wait of a
// fetch) may be up to 1 ms later than elsewhere. Go waits for timers in epoll, in whole milliseconds, so they
// are not finer than that anyway: time.Sleep(1ms) was late by 0.4 to 1.0 ms at the median instead of 0.1, time.Sleep(100us) by 1.4 to 1.9
// instead of 1.0, the 99th percentiles (1 to 3 ms, a loaded machine) did not differ. What ends by bytes that arrive or by
// another goroutine is not affected. Giving the slack back to other threads takes CAP_SYS_NICE
// (/proc/<tid>/timerslack_ns), which a broker does not have as a rule, and a thread can do it itself only while it runs Go code.
func relaxMonitor() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return
	}
	if slack < monitorSlack {
		self, err := os.Executable()
		if err != nil || os.Getenv(relaxed) != "" || unix.Prctl(unix.PR_SET_TIMERSLACK, monitorSlack, 0, 0, 0) != nil {
			return
		}
		_ = syscall.Exec(self, os.Args, append(os.Environ(), relaxed+"=1")) // it only returns if it failed, and then all is as it was
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0)
}
