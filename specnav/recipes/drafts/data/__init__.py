"""What a draft learns from: files of questions and texts, bags, logs, composed requests, what is installed."""
