package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/msg"
)

type request struct {
	Name    string   `json:"name"`
	ID      *uint64  `json:"id"`
	Retries *int64   `json:"retries"`
	On      bool     `json:"on"`
	List    []string `json:"list"`
}

func TestDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want Error
	}{
		"empty":               {"", Error{Fault: Empty}},
		"blank":               {" \n", Error{Fault: Empty}},
		"null":                {"null", Error{Fault: NotObject}},
		"array":               {"[]", Error{Fault: NotObject}},
		"string":              {`"x"`, Error{Fault: NotObject}},
		"text behind":         {`{} {}`, Error{Fault: Syntax, Line: 1, Column: 4}},
		"cut":                 {`{"name":`, Error{Fault: Syntax, Line: 1, Column: 9}},
		"word":                {"{\n \"name\": \"é\", x}", Error{Fault: Syntax, Line: 2, Column: 15}},
		"comma at the end":    {"{\r\n\"id\": 1,\r\n}", Error{Fault: Syntax, Line: 3, Column: 1}},
		"escape at the end":   {`{"name":"\u12`, Error{Fault: Syntax, Line: 1, Column: 14}},
		"byte order mark":     {"\ufeff{}", Error{Fault: Marked}},
		"byte FF":             {"{\"name\":\"\xff\"}", Error{Fault: NotUTF8}},
		"high surrogate":      {`{"name":"\ud800"}`, Error{Fault: NotUTF8}},
		"low surrogate":       {`{"name":"\udc00"}`, Error{Fault: NotUTF8}},
		"two high surrogates": {`{"name":"\ud800\ud800"}`, Error{Fault: NotUTF8}},
		"twice":               {`{"name":"a","name":"b"}`, Error{Fault: Duplicate, Field: "name"}},
		"twice, escaped":      {`{"name":"a","n\u0061me":"b"}`, Error{Fault: Duplicate, Field: "name"}},
		"twice, inside":       {`{"x":[{"y":[1],"z":{},"y":2}]}`, Error{Fault: Duplicate, Field: "y"}},
		"number for a string": {`{"name":1}`, Error{Fault: WrongType, Field: "name", Want: msg.TypeString}},
		"negative":            {`{"id":-1}`, Error{Fault: WrongType, Field: "id", Want: msg.TypeUint64}},
		"fraction":            {`{"id":1.5}`, Error{Fault: WrongType, Field: "id", Want: msg.TypeUint64}},
		"exponent":            {`{"id":1e30}`, Error{Fault: WrongType, Field: "id", Want: msg.TypeUint64}},
		"too large":           {`{"id":18446744073709551616}`, Error{Fault: WrongType, Field: "id", Want: msg.TypeUint64}},
		"string for a number": {`{"id":"1"}`, Error{Fault: WrongType, Field: "id", Want: msg.TypeUint64}},
		"string for a bool":   {`{"on":"true"}`, Error{Fault: WrongType, Field: "on", Want: msg.TypeBool}},
		"number in a list":    {`{"list":[1]}`, Error{Fault: WrongType, Field: "list", Want: msg.TypeStrings}},
	} {
		t.Run(name, func(t *testing.T) {
			var got *Error
			if err := Decode([]byte(test.body), &request{}); !errors.As(err, &got) || *got != test.want {
				t.Errorf("Decode(%s) = %v, want %v", test.body, err, &test.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	var r request
	body := `{"Name":"not this one","name":"\ud83d\ude00 \\ud800","id":18446744073709551615,"retries":null,"more":{"a":1,"b":{"a":1}},"list":["a","a"]}`
	if err := Decode([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	if r.Name != `😀 \ud800` || *r.ID != 1<<64-1 || r.Retries != nil || len(r.List) != 2 {
		t.Errorf("decoded %+v", r)
	}
	r = request{}
	if err := Decode([]byte(`{"NAME":"x","ID":1}`), &r); err != nil || r.Name != "" || r.ID != nil {
		t.Errorf("names in another case: %v, %+v; want them ignored", err, r)
	}
}

// TestObjectLimits: many names are compared correctly too, and the limit of nesting is that of
// encoding/json.
func TestObjectLimits(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf(`"n%d":{"n%d":1,"x":[{"n0":2}]}`, i, i))
	}
	if members, err := Object([]byte("{" + strings.Join(many, ",") + "}")); err != nil || len(members) != 1000 || members[999].Name.Text != "n999" {
		t.Errorf("%d members, %v", len(members), err)
	}
	for _, twice := range []string{"n0", "n15", "n16", "n999"} {
		var got *Error
		if _, err := Object([]byte("{" + strings.Join(many, ",") + `,"` + twice + `":1}`)); !errors.As(err, &got) || *got != (Error{Fault: Duplicate, Field: twice}) {
			t.Errorf("%s twice: %v", twice, err)
		}
	}
	for depth, valid := range map[int]bool{9999: true, 10000: false} {
		body := []byte(`{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}")
		if _, err := Object(body); (err == nil) != valid || json.Valid(body) != valid {
			t.Errorf("%d deep: %v, encoding/json says %t", depth, err, json.Valid(body))
		}
	}
}

// FuzzObject compares Object with encoding/json: a text that one accepts is valid JSON for the other, and
// has as many members.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"\ud83d\ude00"}],"c":null}`))
	f.Add([]byte(`{"a":"\u`))
	f.Add([]byte(`{"":9E999}`))
	f.Add([]byte(` [1.5e+3 , -0.1, true,false , null, "\"\\\/\b\f\n\r\t", [], {} ] `))
	f.Fuzz(func(t *testing.T, body []byte) {
		members, err := Object(body)
		if err != nil {
			if got := err.(*Error).Fault; (got == Syntax || got == Empty) && json.Valid(body) {
				t.Errorf("Object finds %q %v, encoding/json valid", body, got)
			}
			return
		}
		var want map[string]any
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber() // valid JSON has numbers that no float64 holds
		if err := decoder.Decode(&want); err != nil || len(want) != len(members) {
			t.Errorf("Object accepted %q, encoding/json says %v with %d members", body, err, len(want))
		}
		for _, m := range members {
			text := new(string)
			if want, ok := want[m.Name.Text].(string); ok && (decode(body, m.Value, text) != nil || *text != want) {
				t.Errorf("%s is %q, encoding/json says %q", body[m.Value.Begin:m.Value.End], *text, want)
			}
		}
	})
}

// The fields of an embedded struct are members of the object, and a field without a name is none.
func TestEmbedded(t *testing.T) {
	type shared struct {
		ID   string `json:"id"`
		Name string `json:"name,omitempty"`
	}
	var got struct {
		shared
		Count  int64 `json:"count"`
		Hidden string
	}
	if err := Decode([]byte(`{"name":"n","":"x","count":2,"id":"i","Hidden":"h"}`), &got); err != nil {
		t.Fatal(err)
	}
	if got.ID != "i" || got.Name != "n" || got.Count != 2 || got.Hidden != "" {
		t.Errorf("decoded %+v", got)
	}
	type whole struct {
		shared
		Count int64 `json:"count"`
	}
	if names := Fields(whole{}); !slices.Equal(names, []string{"id", "name", "count"}) {
		t.Errorf("the names are %q", names)
	}
	type named struct {
		shared `json:"both"`
	}
	if names := Fields(named{}); !slices.Equal(names, []string{"both"}) {
		t.Errorf("an embedded struct with a name of its own has the names %q", names)
	}
}
