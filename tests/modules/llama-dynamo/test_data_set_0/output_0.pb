BlossJ«þÌ˜£‚
@