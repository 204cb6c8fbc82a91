// Guest is the first and only program of a virtual machine beside meshddns: it mounts the
// disk, starts meshddns on it, reserves prefixes by several clients, and says on the
// console which are acknowledged, until the power is cut.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	api     = "http://127.0.0.1:8053/api/v1/ddns"
	clients = 8
)

func main() {
	fmt.Println("GUEST", run())
	syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// run returns when nothing is to be done any more, with the reason.
func run() error {
	for _, m := range [][2]string{{"/dev", "devtmpfs"}, {"/proc", "proc"}, {"/sys", "sysfs"}, {"/tmp", "tmpfs"}} {
		if err := syscall.Mount(m[1], m[0], m[1], 0, ""); err != nil && m[1] != "devtmpfs" {
			return fmt.Errorf("mount %s: %w", m[0], err)
		}
	}
	for _, step := range []func() error{load, mountDisk, loopbackUp} {
		if err := step(); err != nil {
			return err
		}
	}
	cmd := exec.Command("/meshddns", "-db", "/data/meshddns.db", "-ipv4", "none", "-ipv6", "none")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for ready := false; !ready; {
		select {
		case err := <-ended:
			return fmt.Errorf("meshddns has ended: %v", err)
		case <-time.After(20 * time.Millisecond):
			status, _ := request("PUT", "/services/svc", `{"name":"Service","config":{"domain":"mesh.example.com"}}`)
			ready = status == 200
		}
	}
	fmt.Println("READY")
	var working sync.WaitGroup
	for client := range clients {
		working.Go(func() { reserve(client) })
	}
	working.Wait()
	return fmt.Errorf("all clients have ended")
}

// load loads the kernel's modules, in the order of their names.
func load() error {
	files, err := filepath.Glob("/modules/*")
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		const finitModule = 313 // finit_module(2)
		_, _, fault := syscall.Syscall(finitModule, file.Fd(), uintptr(unsafe.Pointer(new(byte))), 0)
		file.Close()
		if fault != 0 {
			return fmt.Errorf("load %s: %w", path, fault)
		}
	}
	return err
}

// mountDisk mounts a disk once it is there, and says how the kernel makes what it writes
// durable.
func mountDisk() error {
	const name = "vda"
	there := func() bool { _, err := os.Stat("/dev/" + name); return err == nil }
	for end := time.Now().Add(time.Minute); !there() && time.Now().Before(end); {
		<-time.After(20 * time.Millisecond)
	}
	if err := syscall.Mount("/dev/"+name, "/data", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", name, err)
	}
	cache, err := os.ReadFile("/sys/block/" + name + "/queue/write_cache")
	fua, err2 := os.ReadFile("/sys/block/" + name + "/queue/fua")
	fmt.Printf("DISK %s, fua %s\n", bytes.TrimSpace(cache), bytes.TrimSpace(fua))
	return errors.Join(err, err2)
}

// reserve reserves until something else than 200 is the answer.
func reserve(client int) {
	line, _ := os.ReadFile("/proc/cmdline")
	_, boot, _ := strings.Cut(strings.TrimSpace(string(line)), "boot=")
	for n := 0; ; n++ {
		prefix := fmt.Sprintf("b%s-%d-%d", boot, client, n)
		status, body := request("POST", "/usages", fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, prefix, n+1))
		if status != 200 {
			fmt.Println("GUEST", prefix, status, body)
			return
		}
		os.Stdout.WriteString("ACK " + prefix + " .\n")
	}
}

func request(method, path, body string) (status int, text string) {
	r, err := http.NewRequest(method, api+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return response.StatusCode, fmt.Sprint(string(all), err)
}

// loopbackUp is "ip link set lo up" (netdevice(7)).
func loopbackUp() error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	copy(request.name[:], "lo")
	if _, _, fault := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); fault != 0 {
		return fault
	}
	return nil
}
