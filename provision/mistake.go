package provision

import (
	"fmt"
	"strings"
)

// Mistake is what is wrong with a file, and where.
type Mistake struct {
	File   string
	Line   int    // 0: it is about the file as a whole
	Member string // such as services[2].config.domain, "" for none
	Reason string
}

func (m Mistake) String() string { return m.where() + ": " + m.Reason }

// where is what stands before the reason.
func (m Mistake) where() string {
	text := m.File
	if m.Line > 0 {
		text += fmt.Sprintf(":%d", m.Line)
	}
	if m.Member != "" {
		text += ": " + printable(m.Member)
	}
	return text
}

// printable is a text without what could end a line or drive a terminal.
func printable(text string) string {
	quoted := fmt.Sprintf("%+q", text)
	if quoted = quoted[1 : len(quoted)-1]; quoted != text {
		return strings.ToValidUTF8(quoted, "")
	}
	return text
}

// Mistakes are all that is wrong, in the order of files and lines: an error of a line
// for each.
type Mistakes []Mistake

func (all Mistakes) Error() string {
	lines := make([]string, len(all))
	for i, m := range all {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}
