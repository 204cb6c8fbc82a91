# Makes a bill of materials (CycloneDX 1.5, JSON) of the data that the Go linker wrote into a binary. The
# input is `go version -m -json`. It has no random number or time: the same binary has the same bill.
def library($name; $version; $purl; $licence):
  {type: "library", "bom-ref": $purl, $name, $version, $purl, licenses: [{expression: $licence}]};
def address: "pkg:golang/\(.Path)@\(.Version)";
def licence: {"github.com/google/uuid": "BSD-3-Clause", "github.com/mattn/go-sqlite3": "MIT"}[.Path]
  // error("deploy/sbom.jq: the licence of \(.Path) is not known");
def debian: split(" ") as [$package, $release]
  | {libc6: "LGPL-2.1-or-later", libgcc: "GPL-3.0-or-later WITH GCC-exception-3.1"}[$package | split("-")[0]] as $licence
  | library($package; $release; "pkg:deb/debian/\($package)@\($release)"; $licence);
"pkg:generic/meshddns@\($version)?arch=\($arch)" as $self
| ([.Deps[] | library(.Path; .Version; address; licence) + {properties: [{name: "go:sum", value: .Sum}]}]
  + [library("std"; .GoVersion | ltrimstr("go"); "pkg:golang/std@\(.GoVersion | ltrimstr("go"))"; "BSD-3-Clause"),
     library("sqlite"; $sqlite; "pkg:generic/sqlite@\($sqlite)"; "blessing")]
  + ($libraries | split("\n") | map(debian))) as $parts
| {bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
   metadata: {
     timestamp: $date,
     component: {type: "application", "bom-ref": $self, name: "meshddns", $version, purl: $self,
       hashes: [{alg: "SHA-256", content: $sha256}],
       properties: [.Settings[] | {name: "go:\(.Key)", value: .Value}]}},
   components: ($parts | sort_by(.name)),
   dependencies: [{ref: $self, dependsOn: ($parts | map(."bom-ref") | sort)}]}
