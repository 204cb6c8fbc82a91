package hostaddr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests here run in a network namespace of their own, where they make links and routes with ip(8) and from where
// no packet gets out. Their public addresses are of AS112 and AMT, which are globally reachable by the IANA registries
// and are no host's. Links are veth pairs: wan0 and far0, wan1 and far1.

const insideNamespace = "HOSTADDR_TEST_INSIDE_NAMESPACE"

// patience is how long a test waits for what it has caused.
const patience = time.Minute

// inNamespace runs the calling test again, as a process in a new network namespace. There, it returns true.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideNamespace) != "" {
		ip(t, "link set lo up")
		return true
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	// A program under the race detector sleeps for a second when it ends, if it is not told otherwise.
	child.Env = append(os.Environ(), insideNamespace+"=1", "GORACE=atexit_sleep_ms=0")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		child.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	output, err := child.CombinedOutput()
	for _, refusal := range []error{os.ErrPermission, syscall.ENOSPC, syscall.EINVAL, syscall.ENOSYS} {
		if errors.Is(err, refusal) {
			t.Skipf("this host does not let the test create a network namespace: %v", err)
		}
	}
	if err != nil || !bytes.Contains(output, []byte("--- PASS: "+t.Name())) {
		t.Errorf("in the namespace: %v\n%s", err, output)
	}
	return false
}

func ip(t *testing.T, args string) {
	t.Helper()
	if output, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", args, err, output)
	}
}

// addLink makes a link that is up and has no address, not even a link-local one, whose detection of duplicates would
// go on behind the test.
func addLink(t *testing.T, n int) {
	t.Helper()
	ip(t, fmt.Sprintf("link add wan%d type veth peer name far%d", n, n))
	for _, end := range []string{"wan", "far"} {
		ip(t, fmt.Sprintf("link set %s%d addrgenmode none", end, n))
		ip(t, fmt.Sprintf("link set %s%d up", end, n))
	}
}

func sysctl(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// checkAddrs asks the same source for both families; "none" is no address.
func checkAddrs(t *testing.T, source, want4, want6 string) {
	t.Helper()
	for f, want := range map[Family]string{IPv4: want4, IPv6: want6} {
		if got := addrText(t, f, source); got != want {
			t.Errorf("IPv%d %s: found %s, want %s", f, source, got, want)
		}
	}
}

func addrText(t *testing.T, f Family, source string) string {
	t.Helper()
	if a := mustAddr(t, f, source); a.IsValid() {
		return a.String()
	}
	return "none"
}

func TestAutoWithoutRoute(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	checkAddrs(t, "auto", "none", "none")
	addLink(t, 0)
	ip(t, "addr add 192.31.196.1/24 dev wan0")
	ip(t, "addr add 2620:4f:8000::1/64 dev wan0 nodad")
	checkAddrs(t, "auto", "none", "none")
	ip(t, "-4 route add unreachable default metric 1")
	ip(t, "-6 route add unreachable default metric 1")
	checkAddrs(t, "auto", "none", "none")
	checkAddrs(t, "interface:wan0", "192.31.196.1", "2620:4f:8000::1")
}

func TestAutoUsesRouteWithLowestMetric(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for n, metric := range []int{2000, 300} {
		addLink(t, n)
		ip(t, fmt.Sprintf("addr add 192.31.196.%d/32 dev wan%d", n, n))
		ip(t, fmt.Sprintf("addr add 2620:4f:8000:%d::1/64 dev wan%d nodad", n, n))
		ip(t, fmt.Sprintf("-4 route add default dev wan%d metric %d", n, metric))
		ip(t, fmt.Sprintf("-6 route add default dev wan%d metric %d", n, metric))
	}
	checkAddrs(t, "auto", "192.31.196.1", "2620:4f:8000:1::1")
	ip(t, "-4 route del default dev wan1")
	ip(t, "-6 route del default dev wan1")
	checkAddrs(t, "auto", "192.31.196.0", "2620:4f:8000::1")
}

// TestAutoTakesTheKernelsChoice: the address of the old prefix is the lower one and not deprecated yet.
func TestAutoTakesTheKernelsChoice(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	ip(t, "addr add 192.31.196.1/24 dev wan0")
	ip(t, "addr add 192.31.196.2/24 dev wan0")
	ip(t, "addr add 2620:4f:8000::1/128 dev wan0 nodad valid_lft 26293 preferred_lft 26293")
	ip(t, "addr add 2620:4f:8000:5::1/64 dev wan0 nodad valid_lft 256332 preferred_lft 169932")
	ip(t, "-4 route add default dev wan0")
	ip(t, "-6 route add default dev wan0")
	checkAddrs(t, "auto", "192.31.196.1", "2620:4f:8000:5::1")
	checkAddrs(t, "interface:wan0", "192.31.196.1", "2620:4f:8000:5::1")
	ip(t, "-4 route change default dev wan0 src 192.31.196.2")
	ip(t, "-6 route change default dev wan0 src 2620:4f:8000::1")
	checkAddrs(t, "auto", "192.31.196.2", "2620:4f:8000::1")
}

// TestLongestPreferredLifetime: without a default route the kernel chooses none.
func TestLongestPreferredLifetime(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	for i, lifetime := range []int{49_000, 60_000, 100_000} {
		ip(t, fmt.Sprintf("addr add 2620:4f:8000::%d/128 dev wan0 nodad valid_lft 200000 preferred_lft %d", i, lifetime))
	}
	checkAddrs(t, "interface:wan0", "none", "2620:4f:8000::1") // 60 000 is more than half of 100 000
	ip(t, "addr add 2620:4f:8000::9/128 dev wan0 nodad")
	checkAddrs(t, "interface:wan0", "none", "2620:4f:8000::9") // for ever
}

func TestPrivateAddressOnlyWhereTheInterfaceIsNamed(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	ip(t, "-4 route add default dev wan0")
	ip(t, "-6 route add default dev wan0")
	ip(t, "addr add 169.254.0.1/16 dev wan0 scope link")
	ip(t, "addr add fe80::1/64 dev wan0 nodad")
	checkAddrs(t, "interface:wan0", "none", "none")
	checkAddrs(t, "interface:lo", "none", "none")

	ip(t, "addr add 10.0.0.1/8 dev wan0")
	ip(t, "addr add fd00::1/64 dev wan0 nodad")
	checkAddrs(t, "auto", "none", "none")
	checkAddrs(t, "interface:wan0", "10.0.0.1", "fd00::1")

	ip(t, "addr add 192.31.196.1/24 dev wan0")
	ip(t, "addr add 2620:4f:8000::1/64 dev wan0 nodad")
	checkAddrs(t, "auto", "192.31.196.1", "2620:4f:8000::1")
	checkAddrs(t, "interface:wan0", "192.31.196.1", "2620:4f:8000::1")
}

func TestHostWithoutIPv6(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	sysctl(t, "ipv6/conf/wan0/disable_ipv6", "1")
	ip(t, "addr add 192.31.196.1/24 dev wan0")
	ip(t, "-4 route add default dev wan0")
	checkAddrs(t, "auto", "192.31.196.1", "none")
	checkAddrs(t, "interface:wan0", "192.31.196.1", "none")
}

func TestDeprecatedAndTentativeAddressesAreLeftOut(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	ip(t, "-6 route add default dev wan0")
	sysctl(t, "ipv6/conf/wan0/dad_transmits", "1000") // tentative for about as many seconds
	ip(t, "addr add 2620:4f:8000::1/64 dev wan0 nodad preferred_lft 0")
	ip(t, "addr add 2620:4f:8000::2/64 dev wan0")
	checkAddrs(t, "auto", "none", "none")
	ip(t, "addr add 2620:4f:8000::3/64 dev wan0 nodad")
	checkAddrs(t, "auto", "none", "2620:4f:8000::3")
}

func TestTemporaryAddressesAreLeftOut(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	ip(t, "-6 route add default dev wan0")
	sysctl(t, "ipv6/conf/wan0/accept_dad", "0")
	sysctl(t, "ipv6/conf/wan0/use_tempaddr", "2")
	changed := watch(t)

	// The kernel adds a temporary address of the same prefix, and a lower one.
	ip(t, "addr add 2620:4f:8000:0:ffff:ffff:ffff:ffff/64 dev wan0 nodad mngtmpaddr")
	waitUntil(t, changed, "a temporary address", func() bool {
		output, err := exec.Command("ip", "-6", "addr", "show", "dev", "wan0", "temporary", "-tentative").Output()
		return err == nil && len(output) > 0
	})
	checkAddrs(t, "auto", "none", "2620:4f:8000:0:ffff:ffff:ffff:ffff")
	ip(t, "addr change 2620:4f:8000:0:ffff:ffff:ffff:ffff/64 dev wan0 preferred_lft 0")
	checkAddrs(t, "interface:wan0", "none", "none")
}

func TestWatchReportsAddresses(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	ip(t, "addr add 192.31.196.1/32 dev wan0")
	ip(t, "addr add 2620:4f:8000::1/64 dev wan0 nodad")
	ip(t, "-4 route add default dev wan0")
	ip(t, "-6 route add default dev wan0")
	checkAddrs(t, "auto", "192.31.196.1", "2620:4f:8000::1")
	changed := watch(t)

	ip(t, "addr add 192.31.196.2/32 dev wan0")
	ip(t, "addr del 192.31.196.1/32 dev wan0")
	waitForAddr(t, changed, IPv4, "192.31.196.2")
	ip(t, "addr del 2620:4f:8000::1/64 dev wan0")
	waitForAddr(t, changed, IPv6, "none")
	ip(t, "addr add 2620:4f:8000::2/64 dev wan0 nodad")
	waitForAddr(t, changed, IPv6, "2620:4f:8000::2")
	ip(t, "addr change 2620:4f:8000::2/64 dev wan0 preferred_lft 0")
	waitForAddr(t, changed, IPv6, "none")
}

func TestWatchReportsRoutes(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for n := range 2 {
		addLink(t, n)
		ip(t, fmt.Sprintf("addr add 192.31.196.%d/32 dev wan%d", n, n))
		ip(t, fmt.Sprintf("addr add 2620:4f:8000:%d::1/64 dev wan%d nodad", n, n))
	}
	changed := watch(t)
	ip(t, "-4 route add default dev wan0 metric 20")
	waitForAddr(t, changed, IPv4, "192.31.196.0")
	ip(t, "-4 route add default dev wan1 metric 10")
	waitForAddr(t, changed, IPv4, "192.31.196.1")
	ip(t, "-6 route add default dev wan0 metric 20")
	waitForAddr(t, changed, IPv6, "2620:4f:8000::1")
	ip(t, "-6 route add default dev wan1 metric 10")
	waitForAddr(t, changed, IPv6, "2620:4f:8000:1::1")
}

// Without IPv6 on the link, the kernel reports nothing but the link.
func TestWatchReportsLinkThatTakesItsRouteDown(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for n, metric := range []int{100, 200} {
		addLink(t, n)
		sysctl(t, fmt.Sprintf("ipv6/conf/wan%d/disable_ipv6", n), "1")
		sysctl(t, fmt.Sprintf("ipv6/conf/far%d/disable_ipv6", n), "1")
		ip(t, fmt.Sprintf("addr add 192.31.196.%d/32 dev wan%d", n, n))
		ip(t, fmt.Sprintf("-4 route add default dev wan%d metric %d", n, metric))
	}
	checkAddrs(t, "auto", "192.31.196.0", "none")
	changed := watch(t)
	ip(t, "link set wan0 down")
	waitForAddr(t, changed, IPv4, "192.31.196.1")
}

func TestWatchOutlivesLostMessages(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addLink(t, 0)
	calls, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		done <- watchKernel(ctx, func() {
			select {
			case calls <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	waitForCall(t, calls, done)

	// One message may end a Read; then Watch waits in changed, while the socket overflows.
	flood := exec.Command("ip", "-batch", "-")
	flood.Stdin = strings.NewReader(manyAddresses())
	if output, err := flood.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if !socketDropped(t) {
		t.Fatal("the kernel dropped no message")
	}
	for range 3 {
		waitForCall(t, calls, done)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Watch = %v, want nil", err)
	}
}

func manyAddresses() string {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "addr add 10.0.%d.%d/32 dev wan0\n", i/250, i%250)
	}
	return b.String()
}

// socketDropped reads the Drops column of /proc/net/netlink, the last but one.
func socketDropped(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if drops := fields[len(fields)-2]; drops != "0" && drops != "Drops" {
			return true
		}
	}
	return false
}

func TestWatchEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if err := watchKernel(ctx, cancel); err != nil {
		t.Errorf("Watch = %v, want nil", err)
	}
	if err := watchKernel(ctx, func() { t.Error("changed called after the end") }); err != nil {
		t.Errorf("Watch = %v, want nil", err)
	}
}

// watch starts Watch and returns when it listens. The channel gets a value after each change, one for several that
// the test did not wait for.
func watch(t *testing.T) <-chan struct{} {
	t.Helper()
	changed, done := make(chan struct{}, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- watchKernel(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	waitForCall(t, changed, done)
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch = %v, want nil", err)
		}
	})
	return changed
}

func waitForCall(t *testing.T, calls <-chan struct{}, done <-chan error) {
	t.Helper()
	select {
	case <-calls:
	case err := <-done:
		t.Fatalf("Watch ended: %v", err)
	}
}

func waitForAddr(t *testing.T, changed <-chan struct{}, f Family, want string) {
	t.Helper()
	waitUntil(t, changed, want, func() bool { return addrText(t, f, "auto") == want })
}

// waitUntil looks after each change, and not before the first one.
func waitUntil(t *testing.T, changed <-chan struct{}, what string, found func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		select {
		case <-changed:
			if found() {
				return
			}
		case <-ctx.Done():
			t.Fatalf("no change brought %s", what)
		}
	}
}
