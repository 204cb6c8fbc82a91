package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"meshddns/ledger"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"meshddns/provider"
	"meshddns/reconcile"
)

const hiddenSecret = "hunter2-is-my-secret"

// secretHolders are all types of values in which a secret may be.
var secretHolders = []any{
	configuration{}, configurationBody{}, serviceConfig{}, service{}, serviceBody{}, ledger.StoredPlace{},
	provider.Credentials{}, reconcile.Account{}, reconcile.Usage{}, reconcile.Own{}, reconcile.Place{}, reconcile.Name{},
	reconcile.State{}, reconcile.Record{}, reconcile.Zone{}, reconcile.Settlement{},
}

// hide puts the secret wherever it can be, and gives in how many places.
func hide(v reflect.Value, depth int) (count int) {
	switch {
	case depth > 8 || !v.CanSet():
		return 0
	case v.Type() == reflect.TypeFor[provider.Secret]():
		v.SetString(hiddenSecret)
		return 1
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name == "Config" {
				count += hideText(v.Field(i))
				continue
			}
			count += hide(v.Field(i), depth+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return hide(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return hide(v.Index(0), depth+1)
	}
	return count
}

// hideText puts a service's config with a secret into a field that holds one.
func hideText(v reflect.Value) int {
	text := `{"access_key_secret":"` + hiddenSecret + `"}`
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Slice:
		v.SetBytes([]byte(text))
	default:
		return 0
	}
	return 1
}

// However a value is printed by mistake, no secret comes out.
func TestSecretsAreNotPrinted(t *testing.T) {
	for _, holder := range secretHolders {
		t.Run(fmt.Sprintf("%T", holder), func(t *testing.T) {
			pointer := reflect.New(reflect.TypeOf(holder))
			if hide(pointer.Elem(), 0) == 0 {
				t.Fatal("it holds no secret")
			}
			value := pointer.Elem().Interface()
			for _, v := range []any{value, pointer.Interface(), []any{value}, map[string]any{"x": value}} {
				for _, verb := range []string{"%v", "%+v", "%#v"} {
					check(t, verb, fmt.Sprintf(verb, v))
				}
				if text, err := json.Marshal(v); err == nil {
					check(t, "json", string(text))
				}
				var log bytes.Buffer
				slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
				slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
				check(t, "slog", log.String())
			}
		})
	}
}

func check(t *testing.T, how, text string) {
	t.Helper()
	decimal := strings.Trim(fmt.Sprint([]byte(hiddenSecret)), "[]") // as %v prints bytes
	hex := fmt.Sprintf("%x", hiddenSecret)
	commas := strings.Trim(strings.ReplaceAll(fmt.Sprintf("%#v", []byte(hiddenSecret)), "[]byte", ""), "{}")
	for _, form := range []string{hiddenSecret, decimal, hex, commas} {
		if strings.Contains(text, form) {
			t.Fatalf("%s: %s", how, text)
		}
	}
}

// A secret in a field that is not exported is printed raw, for fmt cannot call
// its methods. So there is none.
func TestSecretFieldsAreExported(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
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

// isSecret reports whether a type in the source is provider.Secret, or a struct
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
