package strictjson

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
)

// Equal reports whether two texts are the same JSON: white space, the order of
// members and the writing of a number do not count.
func Equal(a, b []byte) bool {
	x, errX := tree(a)
	y, errY := tree(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func tree(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return alike(value), err
}

// exact is the number to which floating point has every integer.
const exact = 1 << 53

// alike writes every number in one way.
func alike(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = alike(member)
		}
	case []any:
		for i, item := range value {
			value[i] = alike(item)
		}
	case json.Number:
		n, err := value.Float64()
		if err == nil && math.Abs(n) <= exact {
			return json.Number(strconv.FormatFloat(n, 'g', -1, 64))
		}
	}
	return value
}
