package source

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A secret in a field that is not exported is printed raw, for fmt cannot call
// its methods. So there is none.
func TestSecretFieldsAreExported(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					if isSecret(field.Type) && !name.IsExported() {
						t.Errorf("%s: field %s is not exported", path, name.Name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isSecret reports whether a type in the source is secrets.Secret, or a struct
// of another package that holds one.
func isSecret(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isSecret(e.X)
	case *ast.Ident:
		return e.Name == "Secret" || e.Name == "Credentials"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Secret" || e.Sel.Name == "Credentials"
	}
	return false
}
