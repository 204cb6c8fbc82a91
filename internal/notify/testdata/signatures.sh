#!/bin/sh
# Computes the signatures of TestSignatures with openssl, which shares no code with the program:
#	sh signatures.sh > signatures.txt
# Each line is a kind, the secret, the time or the body, and the signature.
set -eu

mac() { # the text from standard input, the key as the first argument
	openssl dgst -sha256 -mac HMAC -macopt "hexkey:$(printf '%s' "$1" | od -An -v -tx1 | tr -d ' \n')" -binary
}

while IFS='	' read -r secret milliseconds; do
	signed=$(printf '%s\n%s' "$milliseconds" "$secret" | mac "$secret" | openssl base64)
	printf 'dingtalk\t%s\t%s\t%s\n' "$secret" "$milliseconds" "$signed"
	seconds=${milliseconds%???}
	key=$(printf '%s\n%s' "$seconds" "$secret")
	printf 'feishu\t%s\t%s\t%s\n' "$secret" "$seconds" "$(mac "$key" </dev/null | openssl base64)"
	body="{\"events\":[{\"seq\":$seconds}]}"
	printf 'generic\t%s\t%s\t%s\n' "$secret" "$body" "$(printf '%s' "$body" | mac "$secret" | od -An -v -tx1 | tr -d ' \n')"
done <<-'END'
	SEC0123456789abcdef	1700000000123
	this is secret	1577262236757
	密钥-äöü	1800000000000
END
