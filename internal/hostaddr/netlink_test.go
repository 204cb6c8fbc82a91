package hostaddr

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"meshddns/internal/mesh"
)

const withoutNetlink = "HOSTADDR_TEST_WITHOUT_NETLINK"

// refuseNetlink lets the calling thread, and what it starts, make no netlink socket, as systemd's
// RestrictAddressFamilies= does.
func refuseNetlink() error {
	const (
		prSetNoNewPrivs, prSetSeccomp, seccompModeFilter = 38, 22, 2
		allow, refuse                                    = 0x7fff0000, 0x00050000 | uint32(syscall.EAFNOSUPPORT)
		callNumber, firstArgument                        = 0, 16 // offsets in struct seccomp_data
	)
	filter := []syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, K: callNumber},
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 3, K: syscall.SYS_SOCKET},
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, K: firstArgument},
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 1, K: syscall.AF_NETLINK},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: refuse},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: allow},
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, err := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); err != 0 {
		return err
	}
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSeccomp, seccompModeFilter, uintptr(unsafe.Pointer(&program))); err != 0 {
		return err
	}
	return nil
}

// startWithoutNetlink runs the calling test again in a process that can make no netlink socket.
func startWithoutNetlink(t *testing.T) {
	t.Helper()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), withoutNetlink+"=1", "GORACE=atexit_sleep_ms=0")
	ended := make(chan error, 1)
	var output []byte
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: its filter affects no other test
		err := refuseNetlink()
		if err == nil {
			output, err = child.CombinedOutput()
		}
		ended <- err
	}()
	if err := <-ended; err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Errorf("without netlink: %v\n%s", err, output)
	}
}

// Without netlink sockets the error has the systemd setting that forbids them. An IPv6 address is
// found without.
func TestWithoutNetlink(t *testing.T) {
	if os.Getenv(withoutNetlink) == "" {
		if !inNamespace(t) {
			return
		}
		addLink(t, 0)
		ip(t, "addr add 192.31.196.1/24 dev wan0")
		ip(t, "addr add 2620:4f:8000::1/64 dev wan0 nodad")
		ip(t, "-4 route add default dev wan0")
		ip(t, "-6 route add default dev wan0")
		checkAddrs(t, "auto", "192.31.196.1", "2620:4f:8000::1")
		startWithoutNetlink(t)
		return
	}
	w := newAutoBook(t)
	for range 3 {
		w.look(t.Context())
	}
	w.check(t, addresses("", "2620:4f:8000::1"), addresses("", "2620:4f:8000::1"))
	const reason = `address family not supported by protocol: RestrictAddressFamilies= has to have AF_NETLINK`
	if w.logged(`level=WARN msg="look up public address" family=IPv4 source=auto reason="auto: \"wan0\": `) != 1 || w.logged(reason) != 1 {
		t.Error(w.log.String())
	}
	if err := watchKernel(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), "netlink socket: "+reason) {
		t.Errorf("Watch = %v", err)
	}
}

// newAutoBook makes a book of the default sources.
func newAutoBook(t *testing.T) *bookWorld {
	t.Helper()
	w := newBook(t, "auto", mesh.Addresses{})
	w.entries[0].source = mustParse(t, IPv4, "auto")
	return w
}

// What auto has found and does not publish is logged with the reason: once, and again when it
// becomes something else.
func TestAutoTellsWhatItFound(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	w := newAutoBook(t)
	told := 0
	tells := func(level, message, family, reason string) {
		t.Helper()
		for range 3 {
			w.look(context.Background())
		}
		told++
		line := "level=" + level + ` msg="` + message + `" family=` + family + ` source=auto reason="` + reason
		if w.logged(line) != 1 || w.logged("reason=") != told {
			t.Errorf("not once, or more than it: %s\n%s", line, w.log.String())
		}
	}
	told++ // of IPv4, at the first look
	tells("INFO", "no public address", "IPv6", `there is no default route for IPv6"`)
	if w.logged(`family=IPv4 source=auto reason="there is no default route for IPv4"`) != 1 {
		t.Error(w.log.String())
	}
	addLink(t, 0)
	ip(t, "-4 route add default dev wan0")
	tells("INFO", "no public address", "IPv4", `wan0, the interface of the default route, has no IPv4 address"`)
	ip(t, "addr add 192.168.1.5/24 dev wan0")
	tells("WARN", "no public address", "IPv4", `wan0, the interface of the default route, has only 192.168.1.5, which is private: url:URL asks`)
	ip(t, "addr add 100.64.0.9/32 dev wan0")
	tells("WARN", "no public address", "IPv4", `wan0, the interface of the default route, has only 192.168.1.5, which is private, and 100.64.0.9, which is shared with`)
	ip(t, "-6 route add default dev wan0")
	ip(t, "addr add fe80::1/64 dev wan0 nodad")
	tells("WARN", "no public address", "IPv6", `wan0, the interface of the default route, has only fe80::1, which is link-local: url:URL asks`)
	ip(t, "addr add 192.31.196.1/24 dev wan0")
	w.look(context.Background())
	if w.logged("reason=") != told || w.logged(`msg="public addresses" ipv4=192.31.196.1`) != 1 {
		t.Error(w.log.String())
	}
	ip(t, "addr del 192.31.196.1/24 dev wan0")
	w.look(context.Background())
	if told++; w.logged("reason=") != told || w.logged(" published=192.31.196.1\n") != 1 {
		t.Errorf("the same reason after a public address is not told:\n%s", w.log.String())
	}
}

// A private address that the operator named is published, with a warning at the start.
func TestPrivateAddressWarns(t *testing.T) {
	for text, want := range map[string]string{
		"192.168.1.5": "192.168.1.5 is private: it is published, and reached from its own network only", "10.0.0.1": "10.0.0.1 is private",
		"172.31.255.1": "is private", "100.64.0.1": "is shared with others behind a carrier's NAT (RFC 6598): it is published",
		"192.31.195.7": "", "100.128.0.1": "", "172.32.0.1": "",
	} {
		w := newBook(t, "none", mesh.Addresses{})
		w.entries[0].source = mustParse(t, IPv4, text)
		for range 3 {
			w.look(t.Context())
		}
		w.check(t, addresses(text, ""), addresses(text, ""))
		private := want != ""
		if got := w.logged("level=WARN"); (got == 1) != private || w.logged(want) == 0 {
			t.Errorf("%s: %s", text, w.log.String())
		}
		if w.Reachable() == private {
			t.Errorf("%s: reachable %t", text, private)
		}
	}
	w := newBook(t, "fd00::1", mesh.Addresses{})
	w.service.say("10.1.2.3")
	w.look(t.Context())
	w.check(t, addresses("10.1.2.3", "fd00::1"), addresses("10.1.2.3", "fd00::1"))
	if w.Reachable() || w.logged("level=WARN") != 2 {
		t.Errorf("reachable %t\n%s", w.Reachable(), w.log.String())
	}
}
