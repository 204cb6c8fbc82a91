package daemon

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// started is the start of the program, a few milliseconds after its exec. The exact time
// needs /proc/stat, which is hidden from a unit with ProcSubset=pid.
var started = time.Now()

// WriteProcess writes the resources that the process uses, under the names of the Prometheus clients.
// It omits a metric that the system does not provide.
func WriteProcess(p *Page) {
	p.Family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	p.Time(started)
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		p.Family("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.")
		p.Float(time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds())
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.Family("process_open_fds", "gauge", "Number of open file descriptors.")
		p.Figure(uint64(len(open)))
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		p.Family("process_max_fds", "gauge", "Maximum number of open file descriptors.")
		p.Figure(limit.Cur)
	}
	if virtual, resident, ok := memory(); ok {
		p.Family("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.")
		p.Figure(virtual)
		p.Family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
		p.Figure(resident)
	}
}

// memory returns the memory of the process in octets (proc(5), statm).
func memory() (virtual, resident uint64, ok bool) {
	text, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0, 0, false
	}
	virtual, errVirtual := strconv.ParseUint(string(fields[0]), 10, 64)
	resident, errResident := strconv.ParseUint(string(fields[1]), 10, 64)
	page := uint64(os.Getpagesize())
	return virtual * page, resident * page, errVirtual == nil && errResident == nil
}
