"""Stops in the languages that most people speak, and what is none in them, from both sides."""

import pytest

from spec_vlm_nav.language.stop_words import PHRASES, is_stop

UNSPACED = [name for name, spoken in PHRASES.items() if "tails" in spoken]
LISTED = ("English", "German", "French", "Spanish")  # test_stop_words tests these
SPACED = [name for name in PHRASES.sections() if name not in (*UNSPACED, *LISTED)]
# language: stops | instructions
SPOKEN = {
    "English": ("stop|halt!|stop right there|don't move a muscle", "stop at the door|find the bus stop"),
    "Mandarin": ("停|停下来！|请马上停下|别动", "在门口停下|找到公交车站"),
    "Hindi": ("रुको|रुक जाओ!|कृपया रुकिए|अभी रुको|रोबोट, रुको|मत हिलो", "दरवाज़े पर रुको|मेज़ तक जाओ|मत रुको"),
    "Spanish": ("para|¡Detente!|alto|robot, detente ahora", "detente en la puerta|no pares"),
    "French": ("arrête-toi|Arrêtez !|stop maintenant|ne bouge plus", "arrête-toi à la porte|ne t'arrête pas"),
    "Arabic": (
        "قف|توقف!|توقّف الآن|من فضلك توقف|لا تتحرك|قِفْ|أوقف الروبوت",
        "قف عند الباب|اذهب إلى الطاولة|لا تتوقف",
    ),
    "Egyptian Arabic": ("اقف|وقف دلوقتي|استنى|ما تتحركش", "اقف عند الباب|روح للباب"),
    "Bengali": ("থামো|থামুন!|দয়া করে থামুন|এখনই থামো|রোবট, থামো", "দরজার কাছে থামো|টেবিলের কাছে যাও"),
    "Portuguese": (
        "pare|Pare agora!|por favor, pare|não se mova|espere",
        "pare na porta|não pare|vá até a parada de ônibus",
    ),
    "Russian": (
        "стой|Стоп!|остановись|Пожалуйста, остановитесь|робот, стой|не двигайся|ни с места",
        "стой у двери|остановись перед столом|не останавливайся|найди остановку",
    ),
    "Urdu": ("رکو|رک جاؤ!|براہ کرم رک جائیں|ابھی رکو|ٹھہرو", "دروازے پر رکو|میز تک جاؤ|مت رکو"),
    "Indonesian": (
        "berhenti|Berhenti sekarang!|tolong berhenti|jangan bergerak",
        "berhenti di pintu|jangan berhenti|pergi ke halte bus",
    ),
    "German": (
        "halt|Stopp!|bleib sofort stehen|anhalten",
        "halt an der Tür|stopp vor dem Tisch|nicht anhalten",
    ),
    "Japanese": (
        "止まれ|止まってください！|今すぐ止まって|ストップ|とまれ|ロボット、止まれ|動くな",
        "ドアの前で止まれ|止まるな|バス停を探して",
    ),
    "Nigerian Pidgin": ("abeg stop|make you stop|no move|stop am now now", "find di bus stop"),
    "Marathi": ("थांबा|थांब!|कृपया थांबा|आत्ता थांब|हलू नका", "दाराजवळ थांबा|टेबलाकडे जा"),
    "Vietnamese": (
        "dừng lại|Dừng!|làm ơn dừng lại|đứng yên|dừng lại ngay|đừng di chuyển",
        "dừng lại ở cửa|đi đến trạm xe buýt",
    ),
    "Telugu": ("ఆగు|ఆగండి!|దయచేసి ఆగండి|వెంటనే ఆపు|కదలకు", "తలుపు దగ్గర ఆగు|బల్ల దగ్గరకు వెళ్ళు"),
    "Hausa": ("tsaya|Tsaya yanzu!|don allah tsaya|kada ka motsa", "tsaya a kofa|je wurin kofa"),
    "Turkish": (
        "dur|DUR!|lütfen dur|hemen durun|robot dur|kımıldama|KIMILDAMA|hareket etme",
        "kapıda dur|durma|durağa git|dur tabelasını bul",
    ),
    "Swahili": (
        "simama|Simama sasa!|tafadhali simama|usisogee",
        "simama kwenye mlango|usisimame|nenda kituo cha basi",
    ),
    "Tagalog": (
        "hinto|Tigil!|pakiusap huminto ka|tumigil ka na|huwag kang gumalaw",
        "huminto ka sa pinto|pumunta sa hintuan ng bus",
    ),
    "Tamil": ("நில்|நில்லுங்கள்!|தயவுசெய்து நில்லுங்கள்|உடனே நிறுத்து", "கதவருகே நில்|மேசைக்கு செல்"),
    "Cantonese": ("停低|停低呀！|唔好郁|唔該停低|即刻停", "喺門口停低|去巴士站"),
    "Wu": ("停下来|覅动|立牢", "到门口停下来"),
    "Persian": ("ایست|بایست!|لطفا توقف کن|همین الان بایست|حرکت نکن|صبر کن", "کنار در بایست|برو به سمت میز"),
    "Korean": (
        "멈춰|멈춰!|정지|제발 멈춰 주세요|지금 당장 멈춰|로봇아 멈춰|움직이지 마|그만해",
        "문 앞에서 멈춰|멈추지 마|버스 정류장을 찾아",
    ),
    "Thai": ("หยุด|หยุด!|กรุณาหยุด|หยุดเดี๋ยวนี้|อย่าขยับ", "หยุดที่ประตู|ไปที่ป้ายรถเมล์"),
    "Javanese": ("mandheg|Mandheg saiki!|tulung mandheg|aja obah", "mandheg ing lawang"),
    "Italian": (
        "fermati|Fermati subito!|fermo|alt|stop adesso|non muoverti|ferma il robot",
        "fermati alla porta|fermati davanti al tavolo|non fermarti|cerca la fermata",
    ),
    "Punjabi": ("ਰੁਕੋ|ਰੁਕ ਜਾਓ!|ਕਿਰਪਾ ਕਰਕੇ ਰੁਕੋ", "ਦਰਵਾਜ਼ੇ ਤੇ ਰੁਕੋ"),
    "Gujarati": ("થોભો|રોકો!|હમણાં અટકો", "દરવાજા પાસે થોભો"),
    "Dutch": (
        "stop|sta stil|Stop met bewegen!|hou op|niet bewegen|blijf staan|stop nu",
        "stop bij de deur|niet stoppen|zoek de bushalte",
    ),
    "Polish": (
        "stój|STÓJ!|zatrzymaj się|proszę się zatrzymać|nie ruszaj się|stoj",
        "stój przy drzwiach|zatrzymaj się przed stołem|nie zatrzymuj się|znajdź przystanek",
    ),
    "Ukrainian": (
        "стій|Стоп!|зупинись|будь ласка, зупинися|не рухайся",
        "стій біля дверей|не зупиняйся|знайди зупинку",
    ),
    "Romanian": ("oprește-te|Stai!|stai pe loc|nu te mișca", "oprește-te lângă ușă|nu te opri"),
    "Greek": ("σταμάτα|ΣΤΑΜΑΤΑ!|σταμάτα τώρα|μην κινείσαι", "σταμάτα στην πόρτα|βρες τη στάση"),
    "Hebrew": ("עצור|עצור!|עצור עכשיו|אל תזוז", "עצור ליד הדלת|לך לדלת"),
    "Czech": ("stůj|Zastav se!|nehýbej se", "zastav u dveří|nezastavuj"),
    "Hungarian": ("állj|Állj meg!|ne mozdulj", "állj meg az ajtónál|menj az ajtóhoz"),
    "Swedish": ("stanna|Stopp!|stå still|rör dig inte", "stanna vid dörren|stanna inte"),
    "Amharic": ("ቁም|አቁም!", "ወደ በሩ ሂድ"),
}


@pytest.mark.parametrize("language", SPOKEN)
def test_each_language_has_its_stops_and_its_instructions(language):
    stops, instructions = (text.split("|") for text in SPOKEN[language])
    for text in stops:
        for said in (text, text.upper(), f"  {text} ", f"Go on. {text}", f"go to the door\n{text}"):
            assert is_stop(said), said
    for text in instructions:
        assert not is_stop(text), text


@pytest.mark.slow
@pytest.mark.parametrize("language", SPACED)
def test_every_head_of_a_spaced_language_stops_alone_and_behind_politeness(language):
    spoken = PHRASES[language]
    heads = f'{spoken.get("heads", "")}|{spoken.get("closed", "")}'
    for head in filter(None, map(str.strip, heads.split("|"))):
        assert is_stop(head) and is_stop(f"{head}!"), head
        for opener in filter(None, map(str.strip, spoken.get("openers", "").split("|"))):
            assert is_stop(f"{opener} {head}") and is_stop(f"{opener}, {head}"), (opener, head)


@pytest.mark.parametrize("language", UNSPACED)
def test_every_head_of_an_unspaced_language_stops_alone_and_behind_politeness(language):
    openers, tails, heads = (
        "".join(PHRASES[language][kind].split()).split("|") for kind in ("openers", "tails", "heads")
    )
    for head in heads:
        assert is_stop(head) and is_stop(openers[0] + head) and is_stop(head + tails[0]), head
        assert not is_stop(head + "12"), head
