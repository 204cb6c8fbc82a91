module meshddns

go 1.26

require (
	github.com/google/uuid v1.6.0
	github.com/mattn/go-sqlite3 v1.14.52
)
