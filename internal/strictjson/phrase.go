package strictjson

import (
	"errors"

	"meshddns/internal/msg"
)

// TypeText has the phrase for each expected type.
var TypeText = map[string]msg.Phrase{
	Bool: {ID: msg.TypeBool}, Int64: {ID: msg.TypeInt64}, Uint64: {ID: msg.TypeUint64},
	Strings: {ID: msg.TypeStrings}, String: {ID: msg.TypeString},
}

// Phrase returns the reason why Decode or Object refused a text.
func Phrase(err error) msg.Phrase {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return msg.Phrase{ID: msg.BodyUnread}
	}
	switch e.Fault {
	case Empty:
		return msg.Phrase{ID: msg.BodyEmpty}
	case NotUTF8:
		return msg.Phrase{ID: msg.BodyNotUTF8}
	case Marked:
		return msg.Phrase{ID: msg.BodyMarked}
	case NotObject:
		return msg.Phrase{ID: msg.BodyNotObject}
	case Duplicate:
		return msg.Phrase{ID: msg.BodyDuplicate, Args: []any{e.Field}}
	case WrongType:
		return msg.Phrase{ID: msg.BodyWrongType, Args: []any{e.Field, TypeText[e.Want]}}
	}
	return msg.Phrase{ID: msg.BodySyntax}
}
