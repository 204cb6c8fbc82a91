package mesh

import (
	"reflect"
	"slices"
	"testing"

	"meshddns/internal/strictjson"
)

// TestOptions: each option can be changed, the others stay, and a usage whose option differs is another one.
func TestOptions(t *testing.T) {
	if names, changes := strictjson.Fields(Options{}), strictjson.Fields(UsageChange{}); !slices.Equal(names, changes[len(changes)-len(names):]) {
		t.Fatalf("the options are %q, and the changes %q", names, changes)
	}
	var stored Usage
	for i := range reflect.TypeFor[Options]().NumField() {
		switch field := reflect.ValueOf(&stored.Options).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("x")
		default:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		}
	}
	if c, differs := (UsageChange{}).Over(stored); differs || !reflect.DeepEqual(c, stored) {
		t.Errorf("an empty change: %+v", c)
	}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		var c UsageChange
		into := reflect.ValueOf(&c).Elem().FieldByName(field.Name)
		switch into.Interface().(type) {
		case *string:
			into.Set(reflect.ValueOf(new(string)))
		default:
			into.Set(reflect.MakeSlice(into.Type(), 0, 0))
		}
		changed, differs := c.Over(stored)
		if reflect.ValueOf(stored.Options).Field(i).IsZero() || !differs || reflect.ValueOf(changed.Options).Field(i).Len() != 0 {
			t.Errorf("%s is not changed: %+v", field.Name, changed.Options)
		}
		for j := range reflect.TypeFor[Options]().NumField() {
			if j != i && !reflect.DeepEqual(reflect.ValueOf(changed.Options).Field(j).Interface(), reflect.ValueOf(stored.Options).Field(j).Interface()) {
				t.Errorf("%s changes another option: %+v", field.Name, changed.Options)
			}
		}
	}
}
