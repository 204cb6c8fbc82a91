package source

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// registries has hosts of package registries, each without its last label, so that this file names none.
var registries = map[string][]string{
	".org": {"deb.debian", "ftp.debian", "security.debian", "snapshot.debian", "dl-cdn.alpinelinux", "downloads.openwrt", "registry.npmjs",
		"pypi", "files.pythonhosted", "rubygems", "repo.maven.apache", "repo1.maven", "proxy.golang", "sum.golang"},
	".com": {"archive.ubuntu", "security.ubuntu", "registry.npmmirror", "registry.yarnpkg", "unpkg", "rubygems"},
	".io":  {"docker", "ghcr", "quay", "static.crates", "index.crates", "goproxy"},
	".net": {"cdn.jsdelivr"},
}

// No file names the host of a package registry: a machine takes packages from its own sources, through
// the registry's ordinary client.
func TestNoRegistries(t *testing.T) {
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == ".git" || name == "dist") {
			return filepath.SkipDir
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for end, hosts := range registries {
			for _, host := range hosts {
				if bytes.Contains(text, []byte(host+end)) {
					t.Errorf("%s: %s", path, host+end)
				}
			}
		}
		return nil
	})
	if err != nil || files < 500 {
		t.Errorf("%d files, %v", files, err)
	}
}
